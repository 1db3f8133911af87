#include "tandem/comm/world.h"

#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <thread>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/comm/connect.h"
#include "tandem/comm/detail/connecting.h"
#include "tandem/comm/detail/nccl.h"
#include "tandem/rendezvous/meeting.h"

namespace tandem::comm {
namespace {

int threads_of(const WorldOptions& options, int ranks_here) {
  if (options.threads > 0) return options.threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / ranks_here);
}

/// The first exception of any rank. Exceptions that follow from the abort do not count.
class FirstFailure {
 public:
  bool set(std::exception_ptr exception) {
    const std::lock_guard lock(mutex_);
    if (exception_) return false;
    exception_ = std::move(exception);
    return true;
  }
  void rethrow() const {
    if (exception_) std::rethrow_exception(exception_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr exception_;
};

ProcessGroup::Connect thread_connect(std::shared_ptr<LocalWorld> local, const WorldOptions& options) {
  if (options.transport.value_or(Transport::memory) != Transport::memory) {
    // libtorch's flight recorder keeps one table per process, without a lock. It must be off if the process has several
    // ranks.
    setenv("TORCH_FR_BUFFER_SIZE", "0", 1);
    return process_connect(c10::make_intrusive<c10d::HashStore>(), options.timeout, *options.transport);
  }
  return [local](const std::string& name, int rank, int size) { return local->connect(name, rank, size); };
}

std::vector<int> ranks_up_to(int n) {
  std::vector<int> ranks(n);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::shared_ptr<Instruments> instruments_of(const WorldOptions& options, int rank, int size) {
  auto instruments = std::make_shared<Instruments>(rank, size);
  instruments->check = options.check;
  if (!options.flight_folder.empty()) instruments->recorder.set_folder(options.flight_folder);
  return instruments;
}

}  // namespace

void run_recorded(ProcessGroup& group, const std::function<void(ProcessGroup&)>& body) {
  try {
    body(group);
  } catch (const Interrupted&) {
    throw;  // not a fault: nothing to record
  } catch (const std::exception& error) {
    group.recorder().write(message_of(error));
    throw;
  } catch (...) {
    group.recorder().write("an exception of unknown type");
    throw;
  }
}

void run_ranks(int n, const std::function<void(ProcessGroup&)>& body, const WorldOptions& options) {
  TORCH_CHECK_VALUE(n >= 1, "run_ranks: number of ranks is ", n, ", wanted 1 or more");
  const auto local = std::make_shared<LocalWorld>(options.timeout);
  const auto connect = thread_connect(local, options);
  FirstFailure failure;
  // Store the exception before the group is destroyed: then the other ranks fail too, and their exceptions must not
  // come first.
  const auto guard = [&](int rank, const std::function<void()>& step) {
    try {
      try {
        step();
      } catch (...) {
        rethrow_with_rank(rank, n);
      }
    } catch (const std::exception& error) {
      failure.set(std::current_exception());
      local->abort(message_of(error));
    }
  };
  // Make these before any rank begins: the doctor takes a record that is older than the beginning of another one for a
  // record of a former run.
  std::vector<std::shared_ptr<Instruments>> instruments;
  for (int rank = 0; rank < n; ++rank) instruments.push_back(instruments_of(options, rank, n));
  const auto run_one = [&](int rank) {
    const RankScope context(rank);
    guard(rank, [&] {
      at::set_num_threads(threads_of(options, n));
      ProcessGroup group(connect, "world", ranks_up_to(n), rank, instruments[rank]);
      guard(rank, [&] { run_recorded(group, body); });
    });
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) threads.emplace_back(run_one, rank);
  for (auto& thread : threads) thread.join();
  failure.rethrow();
}

namespace {

std::weak_ptr<Instruments> joined;  // the instruments of this process's world
std::terminate_handler before = nullptr;

/// Gloo's own thread throws if a peer sends more than is expected, and no code can catch that.
[[noreturn]] void end_process() {
  try {
    if (const auto exception = std::current_exception()) std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    const auto text = message_of(error);
    const auto instruments = joined.lock();
    if (instruments && text.find("gloo") != std::string::npos) {
      const auto source = text.find("] "), remark = text.find(". Received data");
      const auto begin = source == std::string::npos ? 0 : source + 2;
      const auto fault = "the ranks' sizes or types differ, says Gloo: " + text.substr(begin, remark - begin);
      instruments->recorder.write(fault);
      std::fprintf(stderr, "error: %s\n", printable(fault).c_str());
      std::_Exit(static_cast<int>(ExitCode::communication));
    }
  } catch (...) {
  }
  if (before != nullptr) before();
  std::abort();
}

void watch_gloos_thread(const std::shared_ptr<Instruments>& instruments) {
  joined = instruments;
  if (std::get_terminate() != &end_process) before = std::set_terminate(&end_process);
}

}  // namespace

std::unique_ptr<ProcessGroup> join_world(const std::optional<rendezvous::Launch>& launch, const WorldOptions& options) {
  set_process_context({.rank = launch ? launch->rank : 0});
  if (!launch || launch->size == 1) {
    at::set_num_threads(threads_of(options, 1));
    return make_single_group();
  }
  at::set_num_threads(threads_of(options, launch->local_size));
  detail::choose_gpu(launch->local_rank, launch->local_size);
  const auto store =
      rendezvous::meet(*launch, {.timeout = options.init_timeout, .stop_requested = options.stop_requested});
  const auto instruments = instruments_of(options, launch->rank, launch->size);
  watch_gloos_thread(instruments);
  auto group = detail::connect_ranks(store, *launch, options, instruments);
  group->meter().reset();
  return group;
}

}  // namespace tandem::comm
