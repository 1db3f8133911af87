#pragma once
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "tandem/base/category.h"
#include "tandem/base/context.h"
#include "tandem/base/tensor.h"

namespace tandem::memory {

/// The bytes of one block of a model.
struct BlockBytes {
  int block = 0;  // block_name() gives its name
  CategoryBytes live{}, at_peak{};
};

/// One rank's memory. The categories of `live` add up to what the rank has allocated through c10 and not yet freed;
/// `at_peak` are the categories at the moment when their sum was largest. The blocks add up to the same numbers.
struct Account {
  CategoryBytes live{};
  CategoryBytes at_peak{};
  std::vector<BlockBytes> blocks;  // those that hold bytes, or held some at the peak; by number
  int64_t live_bytes() const;
  int64_t peak_bytes() const;

  /// Adds to what is live, in no block.
  void add(Category category, int64_t bytes);
};

/// Replaces c10's CPU allocator by the metering allocator, for the rest of the process. Must be called before the first
/// tensor: memory allocated earlier is not counted. A second call has no effect.
///
/// An allocation with which the process would hold more than the machine had free when the meter was installed throws
/// c10::OutOfMemoryError.
///
/// Each allocation is counted for the rank, the category and the block of the allocating thread's context
/// (base/context.h), and stays there when another thread frees it. Exact for everything that goes through c10 (tensors,
/// oneDNN's scratch). Not counted: graph nodes, mmap'ed files, LAPACK's work space. Freed blocks stay with the process
/// for the next step (no page faults each step), so the resident size can be above the peak. Cost: 64 bytes and about
/// 50 ns per tensor.
void install_meter();
bool meter_is_installed();

/// A separate account, of no rank: while the object lives, memory that this thread allocates is counted there. Measures
/// what a piece of work needs while ranks train. At most 4,096 at a time; the constructor throws c10::Error beyond
/// that. An account cannot be used again until all memory allocated in it is freed.
class ProbeScope {
 public:
  ProbeScope();
  ~ProbeScope();
  ProbeScope(const ProbeScope&) = delete;
  ProbeScope& operator=(const ProbeScope&) = delete;

  Account account() const;
  void reset_peak();

  /// Stands for a rank's number, for an EventLog.
  int number() const { return number_; }

 private:
  int number_;
  ContextScope scope_;
};

/// The peak of some stretches of a rank's time, such as its training steps. The rank must not be a probe's.
class PeakWatch {
 public:
  explicit PeakWatch(int rank);
  ~PeakWatch();
  PeakWatch(const PeakWatch&) = delete;
  PeakWatch& operator=(const PeakWatch&) = delete;

  void begin();
  void end();

  /// What is live now, and what was live at the highest moment between any begin() and its end().
  Account account() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A change of a rank's memory.
struct Event {
  enum class What : uint8_t { allocate, free, move };  // move: to this category

  double seconds = 0;           // of a steady clock
  uint64_t number = 0;          // of the allocation; the rank counts them from 1
  int64_t bytes = 0, live = 0;  // of this allocation; of the rank, after the event
  int block = 0;
  int64_t step = 0;
  Category category = Category::other;
  Phase phase = Phase::forward;
  What what = What::allocate;
};

/// While the object lives, the events of a rank are kept, about 60 bytes each, up to the first event whose context is
/// in step `end_step` or later. One object a rank at a time.
class EventLog {
 public:
  explicit EventLog(int rank, int64_t end_step = std::numeric_limits<int64_t>::max());
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  /// The number of events so far.
  size_t size() const;

  /// Keeps no more events; the events so far, in their order.
  const std::vector<Event>& end();

 private:
  int rank_;
  std::vector<Event> events_;
};

/// While the object lives, a rank may hold at most `bytes`. An allocation beyond that throws c10::OutOfMemoryError,
/// which names the rank and the block; nothing is allocated then. One object a rank at a time. Not for memory of CUDA:
/// its allocator keeps limit_device().
class LimitScope {
 public:
  LimitScope(int rank, int64_t bytes);
  ~LimitScope();
  LimitScope(const LimitScope&) = delete;
  LimitScope& operator=(const LimitScope&) = delete;

  /// What the rank held (live) when an allocation was refused last; nullopt: none was.
  std::optional<Account> refused() const;

 private:
  int rank_;
};

/// Moves a tensor's storage to another category of the account that it is in, as if it had been allocated there: also
/// at the peak, if it existed then. Has no effect on memory that the meter did not allocate.
void tag(const Tensor& tensor, Category category);

/// The same, and to another block.
void tag(const Tensor& tensor, Category category, int block);

/// The number of a tensor's storage in its account, as Event has it; 0 for memory that the meter did not allocate.
uint64_t allocation_of(const Tensor& tensor);

/// The block that a tensor's storage belongs to; 0, of no block, for memory that the meter did not allocate.
int block_of(const Tensor& tensor);

/// The account of a rank (0..Context::kMaxRanks - 1), or of the threads whose context names nobody
/// (Context::kNobody).
Account account(int rank);

/// Sets the rank's peak to its live memory.
void reset_peak(int rank);

}  // namespace tandem::memory
