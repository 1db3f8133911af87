#include "tandem/comm/local/local_exchange.h"

#include <algorithm>

#include "tandem/base/cores.h"
#include "tandem/comm/local/awake_timer.h"

namespace tandem::comm {

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

int spins_for(int size) { return size <= usable_cores() ? 4000 : 50; }

LocalExchange::LocalExchange(int size, std::chrono::milliseconds timeout, std::optional<int> alone)
    : calls_(size), arrivals_(size), timeout_(timeout), alone_(alone), spins_(spins_for(size)) {}

void LocalExchange::meet(int rank, const LocalCall& call) {
  if (alone_) {
    std::ranges::fill(calls_, call);
    return;
  }
  calls_[rank] = call;
  wait_for_all(rank, true);
  std::string text;
  try {
    text = fault();
  } catch (...) {
    part(rank);
    throw;
  }
  if (text.empty()) return;
  part(rank);  // all ranks have read all descriptions
  throw LocalFailure{LocalFailure::Kind::mismatch, text};
}

// A rank that has met still works on the others' memory, and will come: neither an abort nor the timeout may release
// any rank earlier.
void LocalExchange::part(int rank) {
  if (!alone_) wait_for_all(rank, false);
}

void LocalExchange::wait_for_all(int rank, bool heeds_abort) {
  const uint64_t generation = generation_.load(std::memory_order_acquire);
  arrivals_[rank].generation.store(generation + 1, std::memory_order_relaxed);
  if (waiting_.fetch_add(1, std::memory_order_acq_rel) + 1 == size()) return release(generation, heeds_abort);
  const auto is_over = [&] { return generation_.load(std::memory_order_acquire) != generation; };
  for (int i = 0; i < spins_; ++i) {
    if (is_over()) return;
    relax();
  }
  std::unique_lock lock(mutex_);
  if (!heeds_abort) return changed_.wait(lock, is_over);
  AwakeTimer timer(timeout_);
  while (!changed_.wait_for(lock, timer.glance(), [&] { return is_over() || aborted_; }) && !timer.has_ended()) {
  }
  if (is_over()) return;
  if (!aborted_) {
    // Under the same lock: a rank that comes now must not count this rank, which leaves.
    aborted_ = true;
    reason_ = who_is_missing(generation);
    changed_.notify_all();
    throw LocalFailure{LocalFailure::Kind::timed_out, reason_};
  }
  throw LocalFailure{LocalFailure::Kind::aborted, reason_};
}

/// The last rank to come releases all. After an abort some ranks have left already.
void LocalExchange::release(uint64_t generation, bool heeds_abort) {
  {
    const std::lock_guard lock(mutex_);
    if (heeds_abort && aborted_) throw LocalFailure{LocalFailure::Kind::aborted, reason_};
    waiting_.store(0, std::memory_order_relaxed);
    generation_.store(generation + 1, std::memory_order_release);
  }
  changed_.notify_all();
}

std::string LocalExchange::fault() const {
  return disagreement(
      size(), [&](int rank) -> const CallTerms& { return calls_[rank].terms; },
      [&](int rank) -> std::string {
        const auto& its = calls_[rank];
        return its.describe ? its.describe(its.subject) : its.terms.operation;
      });
}

std::string LocalExchange::who_is_missing(uint64_t generation) const {
  const auto is_there = [&](int rank) {
    return arrivals_[rank].generation.load(std::memory_order_relaxed) > generation;
  };
  return missing_ranks(size(), is_there, timeout_.count());
}

void LocalExchange::abort(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_) reason_ = reason;
    aborted_ = true;
  }
  changed_.notify_all();
}

}  // namespace tandem::comm
