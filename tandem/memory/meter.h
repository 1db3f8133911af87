#pragma once
#include <cstdint>

#include "tandem/base/tensor.h"
#include "tandem/memory/category.h"

namespace tandem::memory {

/// One rank's memory. The categories of `live` add up to what the rank has allocated through c10 and not yet freed;
/// `at_peak` are the categories at the moment when their sum was largest.
struct Account {
  CategoryBytes live{};
  CategoryBytes at_peak{};
  int64_t live_bytes() const;
  int64_t peak_bytes() const;
};

/// Replaces c10's CPU allocator by the metering allocator, for the rest of the process. Must be called before the first
/// tensor: memory allocated earlier is not counted. A second call has no effect.
///
/// Exact for everything that goes through c10 (tensors, oneDNN's scratch). Not counted: graph nodes, mmap'ed files,
/// LAPACK's work space. Freed blocks stay with the process for the next step (no page faults each step), so the
/// resident size can be above the peak. Cost: 64 bytes and about 50 ns per tensor.
void install_meter();
bool meter_is_installed();

/// While the object lives, memory that this thread allocates is counted for `rank` (0..1023).
class RankScope {
 public:
  explicit RankScope(int rank);
  ~RankScope();
  RankScope(const RankScope&) = delete;
  RankScope& operator=(const RankScope&) = delete;

 private:
  int before_;
};

/// While the object lives, memory that this thread allocates is counted in `category`. Scopes nest; without one the
/// category is `other`.
class Scope {
 public:
  explicit Scope(Category category);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Category before_;
};

/// A separate account, of no rank: while the object lives, memory that this thread allocates is counted there. Measures
/// what a piece of work needs while ranks train. At most 64 at a time; the constructor throws c10::Error beyond that.
/// An account cannot be used again until all memory allocated in it is freed.
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

/// The account and the category of what this thread allocates, to be handed on to threads that work for it.
struct Owner {
  int book;  // the account: a rank's, or a probe's
  Category category;
};
Owner current_owner();

/// While the object lives, memory that this thread allocates is counted for `owner`.
class OwnerScope {
 public:
  explicit OwnerScope(const Owner& owner);
  ~OwnerScope();
  OwnerScope(const OwnerScope&) = delete;
  OwnerScope& operator=(const OwnerScope&) = delete;

 private:
  Owner before_;
};

/// Moves a tensor's storage to another category of the rank that owns it. Has no effect on memory that the meter did
/// not allocate.
void tag(const Tensor& tensor, Category category);

Account account(int rank);

/// Sets the rank's peak to its live memory.
void reset_peak(int rank);

}  // namespace tandem::memory
