#include "tandem/parallel/replica_threads.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <omp.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/base/threads.h"

namespace tandem::parallel {
namespace {

/// Rethrows the current exception with the replica in its text; of the types of rethrow_with_rank().
[[noreturn]] void rethrow_with_replica(int replica, int count) {
  const auto where = "replica " + std::to_string(replica) + " of " + std::to_string(count);
  try {
    throw;
  } catch (Error& error) {
    bool is_fault = true;  // and then the remedy
    error.rewrite(
        [&](const std::string& text) { return std::exchange(is_fault, false) ? text + " (" + where + ")" : text; });
    throw;
  } catch (c10::Error& error) {
    error.add_context(where);
    throw;
  } catch (const std::exception& error) {
    std::throw_with_nested(RankError(where + ": " + error.what()));
  } catch (...) {
    std::throw_with_nested(RankError(where + ": an exception of unknown type"));
  }
}

/// One call of run().
struct Call {
  int count;
  int threads;
  std::optional<int> first_rank;
  const std::function<void(int)>& work;
  at::ThreadLocalState state;
  std::vector<std::exception_ptr> faults;

  Context context_of(int replica) const {
    auto context = current_context();
    if (first_rank) context.rank = *first_rank + replica;
    return context;
  }

  /// The replicas of one thread.
  void run_on(int thread) {
    const at::ThreadLocalStateGuard guard(state);
    for (int replica = thread; replica < count; replica += threads) {
      const ContextScope scope(context_of(replica));  // of its own: backward changes a scope's block
      try {
        work(replica);
      } catch (...) {
        faults[static_cast<size_t>(replica)] = std::current_exception();
      }
    }
  }

  void rethrow() const {
    const auto first = std::ranges::find_if(faults, [](const auto& fault) { return fault != nullptr; });
    if (first == faults.end()) return;
    try {
      std::rethrow_exception(*first);
    } catch (...) {
      rethrow_with_replica(static_cast<int>(first - faults.begin()), count);
    }
  }
};

}  // namespace

struct ReplicaThreads::Impl {
  explicit Impl(int of_threads) : threads(of_threads) {}
  virtual ~Impl() = default;
  virtual void run(Call& call) = 0;

  const int threads;
};

namespace {

/// The OpenMP team of the calling thread.
struct Team : ReplicaThreads::Impl {
  using Impl::Impl;

  void run(Call& call) override {
    const int own = at::get_num_threads();
#pragma omp parallel num_threads(threads)
    {
      at::set_num_threads(1);                  // oneDNN and MKL plan their loops by it
      const int team = omp_get_num_threads();  // 1 within another region
      for (int thread = omp_get_thread_num(); thread < threads; thread += team) call.run_on(thread);
    }
    at::set_num_threads(own);
  }
};

/// Threads of their own, each with its team.
struct OwnThreads : ReplicaThreads::Impl {
  OwnThreads(int count, int intra_op) : Impl(count) {
    try {
      for (int i = 0; i < count; ++i) {
        all.push_back(start_thread([this, i, intra_op] {
          at::set_num_threads(intra_op);
          serve(i);
        }));
      }
    } catch (...) {
      end();
      throw;
    }
  }

  ~OwnThreads() override { end(); }

  void end() {
    {
      const std::lock_guard lock(mutex);
      is_over = true;
    }
    begins.notify_all();
    for (auto& thread : all) thread.join();
  }

  void serve(int thread) {
    for (int64_t done = 0;; ++done) {
      std::unique_lock lock(mutex);
      begins.wait(lock, [&] { return is_over || calls > done; });
      if (is_over) return;
      auto* own = call;
      lock.unlock();
      own->run_on(thread);
      lock.lock();
      if (--running == 0) ends.notify_one();
    }
  }

  void run(Call& next) override {
    std::unique_lock lock(mutex);
    call = &next;
    running = threads;
    ++calls;
    begins.notify_all();
    ends.wait(lock, [&] { return running == 0; });
  }

  std::mutex mutex;
  std::condition_variable begins, ends;
  Call* call = nullptr;
  int64_t calls = 0;
  int running = 0;
  bool is_over = false;
  std::vector<std::thread> all;
};

}  // namespace

ReplicaThreads::ReplicaThreads(int threads, int intra_op, std::optional<int> first_rank) : first_rank_(first_rank) {
  TORCH_CHECK_VALUE(threads >= 1 && intra_op >= 1, "replicas: threads are ", threads, " and those of an operation ",
                    intra_op, ", wanted 1 or more");
  if (threads == 1) return;
  at::get_num_threads();  // the caller's, before others set theirs: a thread that asks later takes what was set last
  const int own = std::max(1, intra_op / threads);
  if (own == 1) {
    impl_ = std::make_unique<Team>(threads);
  } else {
    impl_ = std::make_unique<OwnThreads>(threads, own);
  }
}

ReplicaThreads::~ReplicaThreads() = default;

std::unique_ptr<ReplicaThreads> ReplicaThreads::for_replicas(int replicas, c10::Device device,
                                                             std::optional<int> first_rank) {
  const int own = at::get_num_threads();
  return std::make_unique<ReplicaThreads>(device.is_cpu() ? std::min(replicas, own) : 1, own, first_rank);
}

int ReplicaThreads::threads() const { return impl_ ? impl_->threads : 1; }

void ReplicaThreads::run(int count, const std::function<void(int)>& work) {
  Call call{count, threads(), first_rank_, work, {}, std::vector<std::exception_ptr>(static_cast<size_t>(count))};
  if (impl_ && count > 1) {
    impl_->run(call);
  } else {
    call.threads = 1;
    call.run_on(0);
  }
  call.rethrow();
}

}  // namespace tandem::parallel
