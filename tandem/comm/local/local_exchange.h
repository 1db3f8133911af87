#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tandem/comm/local/call_terms.h"

namespace tandem::comm {

/// Why an operation of ranks on one host failed.
struct LocalFailure {
  enum class Kind { aborted, timed_out, mismatch };
  Kind kind;
  std::string text;
};

/// How often a waiting thread spins before it sleeps: many times only if each of `size` threads has a core of its own.
int spins_for(int size);

/// Pauses between two spins.
void relax();

/// The contribution of a thread-rank to an operation. The rank keeps owning the memory; other ranks may access it only
/// between meet() and part().
struct LocalCall {
  CallTerms terms;
  const void* input = nullptr;
  void* output = nullptr;
  const void* const* blocks = nullptr;             // if data moves: the memory for each rank, in rank order
  std::string (*describe)(const void*) = nullptr;  // describes the call in error texts; may be null
  const void* subject = nullptr;                   // argument of describe
};

/// The meeting point of N threads: each thread publishes a call, all threads see all calls, and all threads leave
/// together. Does not use torch.
///
///   rank 0  meet ─┐            ┌─ work on each other's memory ─┐
///   rank 1  meet ─┤ all there  ├─ work ...                     ├ part: nobody touches it any more
///   rank 2  meet ─┘            └─ work ...                     ┘
///
/// Waiting threads spin briefly, then sleep. meet() throws LocalFailure when the ranks' calls differ, when a rank stays
/// away longer than the timeout (AwakeTimer), or after abort(). Who has met must part: part() waits without a limit.
class LocalExchange {
 public:
  /// `alone`: the only rank that exists. The others are imagined to make its calls: nobody waits for them.
  LocalExchange(int size, std::chrono::milliseconds timeout, std::optional<int> alone = {});

  int size() const { return static_cast<int>(calls_.size()); }
  std::chrono::milliseconds timeout() const { return timeout_; }

  /// Returns when all ranks have published calls that agree.
  void meet(int rank, const LocalCall& call);
  const LocalCall& call(int rank) const { return calls_[rank]; }

  /// Returns when no rank accesses another rank's memory any more.
  void part(int rank);

  /// Wakes all threads that wait, and fails all later calls with `reason`. The first reason is kept.
  void abort(const std::string& reason);

 private:
  void wait_for_all(int rank, bool heeds_abort);
  void release(uint64_t generation, bool heeds_abort);
  std::string fault() const;
  std::string who_is_missing(uint64_t generation) const;

  struct alignas(64) Arrival {
    std::atomic<uint64_t> generation{0};
  };

  std::vector<LocalCall> calls_;
  std::vector<Arrival> arrivals_;
  const std::chrono::milliseconds timeout_;
  const std::optional<int> alone_;
  const int spins_;
  alignas(64) std::atomic<int> waiting_{0};
  alignas(64) std::atomic<uint64_t> generation_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool aborted_ = false;
  std::string reason_;
};

}  // namespace tandem::comm
