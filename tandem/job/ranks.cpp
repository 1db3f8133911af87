#include "tandem/job/ranks.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "tandem/base/cores.h"
#include "tandem/base/error.h"
#include "tandem/comm/world.h"
#include "tandem/job/detail/same_settings.h"
#include "tandem/job/sections/naming.h"
#include "tandem/memory/device_meter.h"

namespace tandem::job {

void on_ranks(const Job& job, const std::function<void(comm::ProcessGroup&)>& body,
              std::function<bool()> stop_requested) {
  memory::meter_memory_of(job.parallel.device.type());
  const auto run = [&](comm::ProcessGroup& group) { naming_settings({"train", "data"}, [&] { body(group); }); };
  comm::WorldOptions options = {.init_timeout = job.parallel.init_timeout,
                                .timeout = job.parallel.timeout,
                                .threads = job.parallel.threads,
                                .check = job.parallel.check,
                                .stop_requested = std::move(stop_requested),
                                .device = job.parallel.device};
  const auto launch = rendezvous::detect_launch();
  if (!launch || launch->size == 1) return comm::run_ranks(job.parallel.ranks, run, options);
  if (job.parallel.sockets) options.transport = comm::Transport::sockets;
  try {
    const auto group = comm::join_world(launch, options);
    comm::run_recorded(*group, [&](comm::ProcessGroup& all) {
      detail::check_same_settings(job.settings, all);
      run(all);
    });
  } catch (...) {
    rethrow_with_rank(launch->rank, launch->size);
  }
}

int threads_of(const Parallel& parallel) {
  return parallel.threads > 0 ? parallel.threads : default_threads(parallel.ranks);
}

std::optional<int64_t> limit_of(const Job& job, int rank) {
  if (job.memory.guard) return job.memory.guard;
  return job.memory.is_limited() ? std::optional(job.memory.limits[static_cast<size_t>(rank)]) : std::nullopt;
}

std::optional<int64_t> limit_of_gpu(const Job& job, int rank) {
  const auto own = limit_of(job, rank);
  const auto launch = rendezvous::detect_launch();
  if (!own || job.parallel.device.is_cpu()) return std::nullopt;
  if (launch && launch->size > 1) return own;
  const int gpus = c10::impl::VirtualGuardImpl(job.parallel.device.type()).deviceCount();
  int64_t sum = 0;
  for (int other = rank % gpus; other < job.parallel.ranks; other += gpus) sum += *limit_of(job, other);
  return sum;
}

bool prints_for_the_job() {
  const auto launch = rendezvous::detect_launch();
  return !launch || launch->rank == 0;
}

}  // namespace tandem::job
