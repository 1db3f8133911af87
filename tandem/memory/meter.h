#pragma once
#include <cstdint>

#include "tandem/base/tensor.h"
#include "tandem/memory/category.h"

namespace tandem::memory {

/// One rank's books. The categories of `live` add up to what the rank has allocated through c10 and not yet freed;
/// `at_peak` are the categories at the moment when their sum was largest.
struct Account {
  CategoryBytes live{};
  CategoryBytes at_peak{};
  int64_t live_bytes() const;
  int64_t peak_bytes() const;
};

/// Puts the metering allocator in the place of c10's CPU allocator, for the rest of the process. Call it before the
/// first tensor: memory allocated earlier is not in the books. A second call changes nothing.
///
/// Exact for everything that goes through c10 (tensors, oneDNN's scratch). Outside: graph nodes, mmap'ed files,
/// LAPACK's work space. Freed blocks stay with the process for the next step (no page faults each step), so the
/// resident size can be above the peak. Cost: 64 bytes and about 50 ns a tensor.
void install_meter();
bool meter_is_installed();

/// While it lives, what this thread allocates belongs to `rank` (0..1023).
class RankScope {
 public:
  explicit RankScope(int rank);
  ~RankScope();
  RankScope(const RankScope&) = delete;
  RankScope& operator=(const RankScope&) = delete;

 private:
  int before_;
};

/// While it lives, what this thread allocates belongs to `category`. Scopes nest; without one it is `other`.
class Scope {
 public:
  explicit Scope(Category category);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Category before_;
};

/// A book of its own, no rank's: while it lives, what this thread allocates belongs to it. To measure what a piece of
/// work needs beside ranks that train. At most 64 at a time; throws c10::Error beyond. What is allocated here and
/// outlives the scope keeps the book from being used again.
class ProbeScope {
 public:
  ProbeScope();
  ~ProbeScope();
  ProbeScope(const ProbeScope&) = delete;
  ProbeScope& operator=(const ProbeScope&) = delete;

  Account account() const;
  void reset_peak();

 private:
  int book_, before_;
};

/// What this thread's allocations belong to: to hand on to threads that work for it.
struct Owner {
  int book;  // a rank's, or a probe's
  Category category;
};
Owner current_owner();

/// While it lives, what this thread allocates belongs to `owner`.
class OwnerScope {
 public:
  explicit OwnerScope(const Owner& owner);
  ~OwnerScope();
  OwnerScope(const OwnerScope&) = delete;
  OwnerScope& operator=(const OwnerScope&) = delete;

 private:
  Owner before_;
};

/// Moves a tensor's storage to another category of the rank that owns it. Nothing happens to memory that the meter did
/// not allocate.
void tag(const Tensor& tensor, Category category);

Account account(int rank);

/// Sets the rank's peak to what is live now.
void reset_peak(int rank);

}  // namespace tandem::memory
