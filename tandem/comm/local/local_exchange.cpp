#include "tandem/comm/local/local_exchange.h"

#include <algorithm>
#include <cstring>
#include <thread>

namespace tandem::comm {

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

int spins_for(int size) { return size <= static_cast<int>(std::thread::hardware_concurrency()) ? 4000 : 50; }

LocalExchange::LocalExchange(int size, std::chrono::milliseconds timeout, std::optional<int> alone)
    : calls_(size), arrivals_(size), timeout_(timeout), alone_(alone), spins_(spins_for(size)) {}

void LocalExchange::meet(int rank, const LocalCall& call) {
  if (alone_) {
    std::ranges::fill(calls_, call);
    return;
  }
  calls_[rank] = call;
  arrivals_[rank].operation.store(call.operation, std::memory_order_relaxed);
  wait_for_all(rank, true);
  const auto fault = disagreement();
  if (fault.empty()) return;
  part(rank);  // all ranks have read all descriptions
  throw LocalFailure{LocalFailure::Kind::mismatch, fault};
}

// A rank that has met still works on the others' memory, and will come: an abort must not release any rank earlier.
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
  changed_.wait_for(lock, timeout_, [&] { return is_over() || (heeds_abort && aborted_); });
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

/// Returns "" if all ranks make the same call. The text is the same on all ranks.
std::string LocalExchange::disagreement() const {
  for (int rank = 1; rank < size(); ++rank) {
    if (std::strcmp(calls_[0].operation, calls_[rank].operation) != 0 || calls_[0].signature != calls_[rank].signature)
      return other_call(rank);
  }
  if (calls_[0].blocks == nullptr) return "";
  for (int from = 0; from < size(); ++from) {
    for (int to = 0; to < size(); ++to) {
      const int64_t sent = calls_[from].blocks[to].bytes, awaited = calls_[to].awaited[from];
      if (sent != awaited) return other_size(from, to);
    }
  }
  return "";
}

std::string LocalExchange::words_of(int rank) const {
  const auto& call = calls_[rank];
  return "rank " + std::to_string(rank) + " calls " +
         (call.describe ? call.describe(call.subject) : std::string(call.operation));
}

std::string LocalExchange::other_call(int rank) const { return words_of(0) + " and " + words_of(rank); }

std::string LocalExchange::other_size(int from, int to) const {
  return words_of(from) + " and gives rank " + std::to_string(to) + " " +
         std::to_string(calls_[from].blocks[to].bytes) + " bytes, " + words_of(to) + " and awaits " +
         std::to_string(calls_[to].awaited[from]);
}

std::string LocalExchange::who_is_missing(uint64_t generation) const {
  std::string missing;
  for (int rank = 0; rank < size(); ++rank) {
    if (arrivals_[rank].generation.load(std::memory_order_relaxed) > generation) continue;
    missing += (missing.empty() ? "rank " : ", rank ") + std::to_string(rank);
  }
  return missing + " did not come within " + std::to_string(timeout_.count()) + " ms";
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
