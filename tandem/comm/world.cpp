#include "tandem/comm/world.h"

#include <ATen/Parallel.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <future>
#include <numeric>

#include "tandem/base/autograd_engine.h"
#include "tandem/base/computing_device.h"
#include "tandem/base/context.h"
#include "tandem/base/cores.h"
#include "tandem/base/error.h"
#include "tandem/base/limits.h"
#include "tandem/base/quote.h"
#include "tandem/base/threads.h"
#include "tandem/comm/connect.h"
#include "tandem/comm/detail/connecting.h"
#include "tandem/comm/detail/group_calls.h"
#include "tandem/comm/detail/nccl.h"
#include "tandem/comm/run_main.h"
#include "tandem/rendezvous/meeting.h"

namespace tandem::comm {
namespace {

/// Sets the intra-op threads of the calling thread and starts them: a system that refuses one must do so here, before
/// others wait for this rank.
void start_team(int threads) {
  at::set_num_threads(threads);
  if (threads == 1) return;
  try_threads(threads - 1);
#pragma omp parallel num_threads(threads)
  {}
}

int threads_of(const WorldOptions& options, int ranks) {
  return options.threads > 0 ? options.threads : default_threads(ranks);
}

/// A rank that cannot open a connection would let the others wait. To each other rank: a socket, a segment and a watch;
/// rank 0 may serve the store.
void check_descriptors(const rendezvous::Launch& launch) {
  const int of_the_store = launch.rank == 0 && !launch.agent_serves_store ? launch.size + 8 : 1;
  constexpr int kOwn = 12;  // Gloo's, and files that the job reads
  require_descriptors(3 * launch.size + of_the_store + kOwn,
                      "rank " + std::to_string(launch.rank) + " of " + std::to_string(launch.size));
}

/// As default_threads(), with the cores that the other ranks of this host leave. torchrun sets OMP_NUM_THREADS to 1
/// when nobody has set it; this is not a user's wish. `told`: by all ranks; empty if one is of another library.
int threads_of(const WorldOptions& options, const rendezvous::Launch& launch, const std::string& own,
               const std::vector<std::string>& told) {
  if (options.threads > 0) return options.threads;
  const auto given = omp_num_threads();
  const bool is_torchruns = launch.launcher == "torchrun" && launch.local_size > 1 && given == 1;
  if (given && !is_torchruns) return *given;
  return told.empty() ? std::max(1, usable_cores() / launch.local_size) : share_of_cores(own, told);
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

std::shared_ptr<detail::Instruments> instruments_of(const WorldOptions& options, int rank, int size) {
  auto instruments = std::make_shared<detail::Instruments>(rank, size);
  instruments->check = options.check;
  if (!options.flight_folder.empty()) instruments->recorder.set_folder(options.flight_folder);
  return instruments;
}

/// While it lives, the calling thread-rank computes on its device, on a stream of its own.
class DeviceSeat {
 public:
  DeviceSeat(c10::Device device, int rank) {
    if (device.is_cpu()) return;
    const c10::impl::VirtualGuardImpl guard(device.type());
    TORCH_CHECK_VALUE(guard.deviceCount() > 0, "run_ranks: device is ", device, ", and there is none, wanted cpu");
    if (!device.has_index()) device.set_index(static_cast<c10::DeviceIndex>(rank % guard.deviceCount()));
    stream_.emplace(guard.getStreamFromGlobalPool(device));
    engine_.emplace();
  }

 private:
  std::optional<c10::StreamGuard> stream_;
  std::optional<EngineScope> engine_;
};

/// Runs `run_one` on n threads. Throws std::system_error, after none has run, if the system refuses one.
void start_ranks(int n, const std::function<void(int)>& run_one) {
  std::promise<bool> starts;
  const auto all_start = starts.get_future().share();
  std::vector<std::jthread> threads;
  try {
    for (int rank = 0; rank < n; ++rank) {
      threads.push_back(start_thread<std::jthread>([&run_one, all_start, rank] {
        if (all_start.get()) run_one(rank);
      }));
    }
  } catch (...) {
    starts.set_value(false);
    throw;
  }
  starts.set_value(true);
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
  watch_uncaught();
  set_computing_device(options.device.type());
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
  std::vector<std::shared_ptr<detail::Instruments>> instruments;
  for (int rank = 0; rank < n; ++rank) instruments.push_back(instruments_of(options, rank, n));
  const auto run_one = [&](int rank) {
    const RankScope context(rank);
    guard(rank, [&] {
      start_team(threads_of(options, n));
      const DeviceSeat seat(options.device, rank);
      ProcessGroup group(connect, "world", ranks_up_to(n), rank, instruments[rank]);
      guard(rank, [&] { run_recorded(group, body); });
    });
  };
  start_ranks(n, run_one);
  failure.rethrow();
}

namespace {

std::weak_ptr<detail::Instruments> joined;  // the instruments of this process's world
std::terminate_handler before_gloo = nullptr;

/// Ends the process if the exception is Gloo's word that the ranks' sizes or types differ.
void end_if_sizes_differ(const std::exception& error) {
  const auto text = message_of(error);
  const auto instruments = joined.lock();
  if (!instruments || text.find("gloo") == std::string::npos) return;
  const auto source = text.find("] "), remark = text.find(". Received data");
  const auto begin = source == std::string::npos ? 0 : source + 2;
  const auto fault = "the ranks' sizes or types differ, says Gloo: " + text.substr(begin, remark - begin);
  instruments->recorder.write(fault);
  std::fprintf(stderr, "error: %s\n", printable(fault).c_str());
  std::_Exit(static_cast<int>(ExitCode::communication));
}

/// Gloo's own thread throws if a peer sends more than is expected, and no code can catch that.
[[noreturn]] void end_by_gloo() {
  try {
    if (const auto exception = std::current_exception()) std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    try {
      end_if_sizes_differ(error);
    } catch (...) {  // no memory for a text: the handler before this one ends the process with that
    }
  } catch (...) {
  }
  if (before_gloo != nullptr) before_gloo();
  std::abort();
}

void watch_gloos_thread(const std::shared_ptr<detail::Instruments>& instruments) {
  joined = instruments;
  if (std::get_terminate() != &end_by_gloo) before_gloo = std::set_terminate(&end_by_gloo);
}

}  // namespace

std::unique_ptr<ProcessGroup> join_world(const std::optional<rendezvous::Launch>& launch, const WorldOptions& options) {
  watch_uncaught();
  set_computing_device(options.device.type());
  set_process_context({.rank = launch ? launch->rank : 0});
  if (!launch || launch->size == 1) {
    start_team(threads_of(options, 1));
    return make_single_group();
  }
  detail::choose_gpu(launch->local_rank, launch->local_size);
  check_descriptors(*launch);
  const auto cores = describe_cores();
  const auto meeting = rendezvous::meet(
      *launch, {.timeout = options.init_timeout, .stop_requested = options.stop_requested, .card = cores});
  start_team(threads_of(options, *launch, cores, meeting.cards));
  const auto instruments = instruments_of(options, launch->rank, launch->size);
  watch_gloos_thread(instruments);
  auto group = detail::connect_ranks(meeting.store, *launch, options, instruments);
  group->meter().reset();
  return group;
}

void run_world(int n, const std::function<void(ProcessGroup&)>& body, const WorldOptions& options) {
  const auto launch = rendezvous::detect_launch();
  if (!launch || launch->size == 1) return run_ranks(n, body, options);
  try {
    run_recorded(*join_world(launch, options), body);
  } catch (...) {
    rethrow_with_rank(launch->rank, launch->size);
  }
}

}  // namespace tandem::comm
