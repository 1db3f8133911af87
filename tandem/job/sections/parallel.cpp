#include "tandem/job/sections/parallel.h"

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/job/gpu.h"
#include "tandem/job/job.h"
#include "tandem/job/sections/choice.h"
#include "tandem/job/sections/mesh.h"
#include "tandem/job/sections/section.h"
#include "tandem/rendezvous/environment.h"

namespace tandem::job {
namespace {

constexpr std::array<Choice<c10::DeviceType>, 2> kDevices = {
    {{"cpu", c10::DeviceType::CPU}, {"cuda", c10::DeviceType::CUDA}}};

constexpr std::array<Choice<bool>, 2> kTransports = {{{"auto", false}, {"sockets", true}}};

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(std::max<int64_t>(1, std::llround(seconds * 1000)));
}

/// Of a launcher that has started several processes.
std::optional<rendezvous::Launch> launch_of_processes() {
  auto launch = rendezvous::detect_launch();
  if (launch && launch->size == 1) launch.reset();
  return launch;
}

/// What the ranks will use, as far as can be told before they have met. NCCL needs no more memory than threads do.
comm::Transport transport_of(const Parallel& parallel) {
  const auto launch = launch_of_processes();
  if (!launch || !parallel.device.is_cpu()) return comm::Transport::memory;
  return parallel.sockets || launch->local_size < launch->size ? comm::Transport::sockets : comm::Transport::segments;
}

/// As many ranks as the launcher has started; without a launcher, as `ranks` says.
int world_size(const settings::Settings& settings) {
  const auto ranks = settings.get_int("ranks");
  const auto launch = launch_of_processes();
  if (!launch) return static_cast<int>(ranks);
  if (settings.given("ranks") && ranks != launch->size) {
    throw SettingsError("ranks is " + std::to_string(ranks) + ", wanted " + std::to_string(launch->size) + " as " +
                            launch->launcher + " has started",
                        "leave ranks out");
  }
  return launch->size;
}

/// All replicas are in the process, whatever a launcher says.
int replicas_of(const settings::Settings& settings, const parallel::Strategy& strategy) {
  const auto launch = launch_of_processes();
  if (!launch) return static_cast<int>(settings.get_int("ranks"));
  throw SettingsError("parallel is " + std::string(strategy.name) + ", whose ranks are threads of one process, with " +
                          std::to_string(launch->size) + " processes that " + launch->launcher +
                          " has started, wanted 1",
                      "use parallel=ddp, or start one process and give ranks");
}

std::vector<std::string_view> parallel_names() {
  auto names = names_of(parallel::strategies());
  for (const auto& shorthand : shorthands()) names.push_back(shorthand.name);
  names.push_back(kAutoPlan);
  return names;
}

void read_parallel(settings::Settings& settings, Job& job) {
  const auto& strategy = parallel::strategy_of(strategy_name(settings.get_string("parallel")));
  job.parallel = {.ranks = strategy.is_one_process ? 1 : world_size(settings),
                  .threads = static_cast<int>(settings.get_int("threads")),
                  .device = chosen(kDevices, settings.get_string("device")),
                  .strategy = &strategy,
                  .init_timeout = milliseconds(settings.get_float("comm.init_timeout")),
                  .timeout = milliseconds(settings.get_float("comm.timeout")),
                  .check = settings.get_bool("comm.check"),
                  .sockets = chosen(kTransports, settings.get_string("comm.transport"))};
  job.parallel.transport = transport_of(job.parallel);
  if (strategy.is_one_process) job.parallel.strategy_options.dp.replicas = replicas_of(settings, strategy);
  if (job.parallel.device.is_cuda()) check_gpu();
  settings.set("ranks", std::to_string(job.parallel.parts()));
}

}  // namespace

parallel::Shares Parallel::shares(int of_ranks) const {
  return strategy->shares(mesh(of_ranks).size(parallel::kBatchAxes), strategy_options);
}

parallel::RankOfBatch Parallel::rank_of_batch(int rank, int of_ranks) const {
  const auto sizes = mesh(of_ranks);
  return {sizes.number_along(parallel::kBatchAxes, rank), sizes.size(parallel::kBatchAxes)};
}

const Section& parallel_section() {
  static const auto strategies =
      docs_of(shorthands(), docs_of(parallel::strategies(), "how the ranks share the work")) +
      "; auto: by the fastest plan that fits memory.limit, which chooses mesh, strategy, schedule, micro-batches, "
      "recompute and head.over, but for those that are given";
  static const Section section = {
      .rows =
          {{"ranks",
            int64_t{1},
            "ranks that train together, as threads of this process; under a launcher leave it out: the launcher has "
            "started the ranks, and another number than theirs is refused",
            {1, 1024}},
           {"threads",
            int64_t{0},
            "compute threads per rank; 0: OMP_NUM_THREADS, or else the rank's part of the cores, and 1 with "
            "train.shards",
            {0, 1024}},
           {.key = "device",
            .default_value = text("cpu"),
            .doc = "where a rank computes; cuda: on a GPU, which ranks share if there are fewer",
            .choices = names_of(kDevices)},
           {.key = "parallel",
            .default_value = text(parallel::strategies().front().name),
            .doc = strategies,
            .choices = parallel_names()},
           {"comm.init_timeout", 300.0, "seconds that ranks wait for each other at the start", kSeconds},
           {"comm.timeout", 120.0, "seconds that ranks wait for each other in an operation", kSeconds},
           {"comm.check", false,
            "compare every collective call with the calls of the other ranks before it is made; slow, for debugging"},
           {.key = "comm.transport",
            .default_value = text("auto"),
            .doc = "how processes exchange CPU tensors; auto: through shared memory if all ranks of a group are on one "
                   "host, else over sockets; sockets: always so",
            .choices = names_of(kTransports)}},
      .read = read_parallel,
      .idle = {{{"comm.check", "comm.transport", "comm.timeout", "comm.init_timeout"},
                [](const Job& job) { return job.parallel.strategy->is_one_process; },
                "with replicas of one process, which send nothing"},
               {{"comm.check", "comm.transport"},
                [](const Job& job) { return job.parallel.ranks == 1; },
                "with one rank"},
               {{"comm.transport"}, [](const Job&) { return !launch_of_processes(); }, "except between processes"}},
      .in_use = {"ranks", "threads", "device", "comm.init_timeout", "comm.timeout", "comm.check", "comm.transport"}};
  return section;
}

}  // namespace tandem::job
