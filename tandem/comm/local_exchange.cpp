#include "tandem/comm/local_exchange.h"

#include <cstring>
#include <thread>

namespace tandem::comm {
namespace {

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Spinning pays only where each rank has a core of its own.
int spins_for(int size) { return size <= static_cast<int>(std::thread::hardware_concurrency()) ? 4000 : 50; }

}  // namespace

LocalExchange::LocalExchange(int size, std::chrono::milliseconds timeout)
    : calls_(size), arrivals_(size), timeout_(timeout), spins_(spins_for(size)) {}

void LocalExchange::meet(int rank, const LocalCall& call) {
  calls_[rank] = call;
  arrivals_[rank].operation.store(call.operation, std::memory_order_relaxed);
  wait_for_all(rank);
  check_agreement();
}

void LocalExchange::part(int rank) { wait_for_all(rank); }

void LocalExchange::wait_for_all(int rank) {
  const uint64_t generation = generation_.load(std::memory_order_acquire);
  arrivals_[rank].generation.store(generation + 1, std::memory_order_relaxed);
  if (waiting_.fetch_add(1, std::memory_order_acq_rel) + 1 == size()) {
    waiting_.store(0, std::memory_order_relaxed);
    {
      const std::lock_guard lock(mutex_);
      generation_.store(generation + 1, std::memory_order_release);
    }
    changed_.notify_all();
    return;
  }
  const auto is_over = [&] { return generation_.load(std::memory_order_acquire) != generation; };
  for (int i = 0; i < spins_ && !aborted_.load(std::memory_order_relaxed); ++i) {
    if (is_over()) return;
    relax();
  }
  std::unique_lock lock(mutex_);
  const bool in_time = changed_.wait_for(lock, timeout_, [&] { return is_over() || aborted_.load(); });
  if (is_over()) return;
  if (aborted_) throw Failure{Fault::aborted, reason_};
  if (!in_time) throw Failure{Fault::timed_out, who_is_missing(generation)};
}

void LocalExchange::check_agreement() const {
  for (int rank = 1; rank < size(); ++rank) {
    const auto &first = calls_[0], &other = calls_[rank];
    if (std::strcmp(first.operation, other.operation) == 0 && first.signature == other.signature) continue;
    throw Failure{
        Fault::mismatch,
        std::string("rank 0 calls ") + first.operation + " and rank " + std::to_string(rank) + " calls " +
            other.operation +
            (std::strcmp(first.operation, other.operation) == 0 ? " with another size, type, root or reduction" : "")};
  }
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
