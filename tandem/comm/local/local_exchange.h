#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace tandem::comm {

/// Why a thread-rank's operation did not come to its end.
struct LocalFailure {
  enum class Kind { aborted, timed_out, mismatch };
  Kind kind;
  std::string text;
};

/// How often to look again before sleeping: many times only where each of `size` threads has a core of its own.
int spins_for(int size);

/// A moment between two looks.
void relax();

/// Memory that one rank gives to another.
struct LocalBlock {
  const void* data = nullptr;
  int64_t bytes = 0;
};

/// What a thread-rank brings to an operation. The memory stays the rank's own; others read and write it only between
/// meet() and part().
struct LocalCall {
  const char* operation = "";
  uint64_t signature = 0;  // equal on all ranks of a right call: kind of reduction, type, sizes, root
  const void* input = nullptr;
  void* output = nullptr;
  const LocalBlock* blocks = nullptr;              // operations that move: what each rank gets, in rank order
  const int64_t* awaited = nullptr;                // and the bytes that this rank awaits from each
  std::string (*describe)(const void*) = nullptr;  // for who must tell this call from another; may be null
  const void* subject = nullptr;                   // its argument
};

/// The meeting place of N threads: each publishes a call, all see all calls, all leave together. No torch in it.
///
///   rank 0  meet ─┐            ┌─ work on each other's memory ─┐
///   rank 1  meet ─┤ all there  ├─ work ...                     ├ part: nobody touches it any more
///   rank 2  meet ─┘            └─ work ...                     ┘
///
/// Waiting threads spin briefly, then sleep. Throws LocalFailure when the ranks' calls differ, when a rank
/// stays away longer than the timeout, or after abort().
class LocalExchange {
 public:
  LocalExchange(int size, std::chrono::milliseconds timeout);

  int size() const { return static_cast<int>(calls_.size()); }
  std::chrono::milliseconds timeout() const { return timeout_; }

  /// Returns when all ranks have come with calls that agree.
  void meet(int rank, const LocalCall& call);
  const LocalCall& call(int rank) const { return calls_[rank]; }

  /// Returns when nobody touches anybody's memory any more.
  void part(int rank);

  /// Releases everyone who waits and everyone who comes later. `reason` is what they are told; the first one stays.
  void abort(const std::string& reason);

 private:
  void wait_for_all(int rank, bool heeds_abort);
  void release(uint64_t generation, bool heeds_abort);
  std::string disagreement() const;
  std::string words_of(int rank) const;
  std::string other_call(int rank) const;
  std::string other_size(int from, int to) const;
  std::string who_is_missing(uint64_t generation) const;

  struct alignas(64) Arrival {
    std::atomic<uint64_t> generation{0};
    std::atomic<const char*> operation{""};
  };

  std::vector<LocalCall> calls_;
  std::vector<Arrival> arrivals_;
  const std::chrono::milliseconds timeout_;
  const int spins_;
  alignas(64) std::atomic<int> waiting_{0};
  alignas(64) std::atomic<uint64_t> generation_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool aborted_ = false;
  std::string reason_;
};

}  // namespace tandem::comm
