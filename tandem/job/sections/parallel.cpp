#include "tandem/job/sections/parallel.h"

#include <ATen/Context.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/job/job.h"
#include "tandem/job/sections/choice.h"
#include "tandem/job/sections/naming.h"
#include "tandem/job/sections/section.h"
#include "tandem/models/model.h"
#include "tandem/parallel/aggregation.h"
#include "tandem/rendezvous/environment.h"
#include "tandem/settings/value.h"

namespace tandem::job {
namespace {

constexpr std::array<Choice<c10::DeviceType>, 2> kDevices = {
    {{"cpu", c10::DeviceType::CPU}, {"cuda", c10::DeviceType::CUDA}}};

constexpr std::array<Choice<bool>, 2> kUpdates = {{{"worker", false}, {"server", true}}};  // the servers step
constexpr std::array<Choice<bool>, 2> kTransports = {{{"auto", false}, {"sockets", true}}};
constexpr std::array<Choice<bool>, 2> kModes = {{{"sync", false}, {"async", true}}};  // workers do not wait

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

/// A backward pass on a GPU runs on one thread per GPU and process: ranks of one process would wait for each other
/// there for ever.
void check_cuda(int ranks, const parallel::Strategy& strategy) {
  if (ranks > 1 && strategy.is_one_process) {
    throw SettingsError("parallel is " + std::string(strategy.name) + " with device=cuda, wanted cpu, where its " +
                            std::to_string(ranks) + " replicas run",
                        "use parallel=ddp");
  }
  if (ranks > 1 && !launch_of_processes()) {
    throw SettingsError("ranks is " + std::to_string(ranks) + " with device=cuda, wanted 1 in a process",
                        "use tandem launch -n " + std::to_string(ranks) + " -- tandem train device=cuda ...");
  }
  if (at::hasCUDA()) return;
  throw SettingsError("device is cuda, and no GPU is found, wanted cpu",
                      "leave device out, or use a build with TANDEM_CUDA=ON on a machine with a GPU");
}

std::string strategies_doc() {
  std::string doc = "how the ranks share the work";
  for (const auto& strategy : parallel::strategies()) {
    doc.append("; ").append(strategy.name).append(": ").append(strategy.doc);
  }
  return doc;
}

std::string aggregates_doc() {
  std::string doc = "ps: how the ranks' gradients are combined";
  for (const auto& aggregate : parallel::aggregates()) {
    doc.append("; ").append(aggregate.name).append(": ").append(aggregate.doc);
  }
  return doc;
}

constexpr char kFsdp[] = "fsdp", kPs[] = "ps", kLocalSgd[] = "local_sgd", kDiloco[] = "diloco";

/// The settings that begin with `settings` are another strategy's than the job's.
template <const char* settings>
bool is_of_another(const Job& job) {
  return job.parallel.strategy->settings != settings;
}

void check_aggregate(const Job& job) {
  const auto& aggregate = *job.parallel.strategy_options.ps.aggregate;
  const int ranks = job.parallel.ranks, workers = job.parallel.workers();
  if (is_idle(job, "ps.aggregate") || workers >= aggregate.least_ranks) return;
  const auto servers = workers < ranks ? " and ps.servers " + std::to_string(ranks - workers) : "";
  throw SettingsError("ps.aggregate is " + std::string(aggregate.name) + " with ranks " + std::to_string(ranks) +
                      servers + ", wanted " + std::to_string(aggregate.least_ranks) + " ranks or more" +
                      (servers.empty() ? "" : " that train"));
}

/// Ranks that do not wait for each other send nothing but gradients and weights, and a step of theirs cannot be undone.
void check_async(const Job& job) {
  if (!job.parallel.is_async) return;
  const auto form = std::string(job.head.form->name);
  if (!job.head.form->is_whole) {
    throw SettingsError("ps.mode is async with head.parallel=" + form + ", for which all ranks meet in each step",
                        "use head.parallel=replicated, or ps.mode=sync");
  }
  if (job.parallel.strategy_options.ps.staleness == 0) return;
  const auto refuse = [](bool is_set, const std::string& key) {
    if (!is_set) return;
    throw SettingsError("ps.mode is async with " + key + ", which takes a step back when later ones have begun",
                        "leave " + key + " out, or use ps.staleness=0");
  };
  refuse(job.training.skip_nonfinite > 0, "train.skip_nonfinite");
  refuse(job.training.loss_scale.has_value(), "train.precision=float16");
}

constexpr int kMostNeighbours = 1024;

std::optional<std::string> read_neighbours(std::string_view text) {
  const auto count = settings::read_integer(text);
  if (!count || *count < 2 || *count > kMostNeighbours) return std::nullopt;
  return std::to_string(*count);
}

/// As FullyShardOptions::reshard has it.
int neighbours_of(const std::string& text) {
  if (text == "true") return 0;
  return text == "false" ? 1 : std::stoi(text);
}

parallel::StrategyOptions read_options(const settings::Settings& settings) {
  parallel::StrategyOptions options;
  const bool is_async = chosen(kModes, settings.get_string("ps.mode"));
  options.ps = {.aggregate = &parallel::aggregate_of(settings.get_string("ps.aggregate")),
                .servers = static_cast<int>(settings.get_int("ps.servers")),
                .servers_update = is_async || chosen(kUpdates, settings.get_string("ps.update")),
                .staleness = is_async ? settings.get_int("ps.staleness") : 0};
  options.local_sgd.every = settings.get_int("local_sgd.every");
  options.fsdp = {.shard = static_cast<int>(settings.get_int("fsdp.shard")),
                  .reshard = neighbours_of(settings.get_string("fsdp.reshard")),
                  .prefetch = settings.get_bool("fsdp.prefetch")};
  options.diloco.every = settings.get_int("diloco.every");
  options.diloco.outer = {.learning_rate = settings.get_float("diloco.lr"),
                          .momentum = settings.get_float("diloco.momentum")};
  return options;
}

void read_parallel(settings::Settings& settings, Job& job) {
  const auto& strategy = parallel::strategy_of(settings.get_string("parallel"));
  job.parallel = {.ranks = strategy.is_one_process ? 1 : world_size(settings),
                  .threads = static_cast<int>(settings.get_int("threads")),
                  .device = chosen(kDevices, settings.get_string("device")),
                  .strategy = &strategy,
                  .strategy_options = read_options(settings),
                  .is_async = strategy.settings == kPs && chosen(kModes, settings.get_string("ps.mode")),
                  .init_timeout = milliseconds(settings.get_float("comm.init_timeout")),
                  .timeout = milliseconds(settings.get_float("comm.timeout")),
                  .check = settings.get_bool("comm.check"),
                  .sockets = chosen(kTransports, settings.get_string("comm.transport"))};
  job.parallel.transport = transport_of(job.parallel);
  if (strategy.is_one_process) job.parallel.strategy_options.dp.replicas = replicas_of(settings, strategy);
  if (job.parallel.device.is_cuda()) check_cuda(job.parallel.parts(), strategy);
  naming_settings({strategy.settings}, [&] { return job.parallel.mesh(job.parallel.ranks); });
  settings.set("ranks", std::to_string(job.parallel.parts()));
}

/// Replicas in one process send each other nothing in forward.
void check_statistics(const Job& job) {
  const auto& parallel = job.parallel;
  if (!parallel.strategy->is_one_process || parallel.parts() == 1 || !models::shares_statistics(job.model.norm)) return;
  throw SettingsError("model.norm shares statistics with parallel=" + std::string(parallel.strategy->name) +
                          ", whose replicas do not, wanted a norm without",
                      "use model.norm=batch, or parallel=ddp");
}

void check_parallel(const Job& job) {
  check_aggregate(job);
  check_async(job);
  check_statistics(job);
}

}  // namespace

const Section& parallel_section() {
  static const auto strategies = strategies_doc(), aggregates = aggregates_doc();
  static const Section section =
      {.rows =
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
             .doc = "where a rank computes; cuda: on a GPU, one rank a process",
             .choices = names_of(kDevices)},
            {.key = "parallel",
             .default_value = text(parallel::strategies().front().name),
             .doc = strategies,
             .choices = names_of(parallel::strategies())},
            {.key = "ps.aggregate",
             .default_value = text(parallel::aggregates().front().name),
             .doc = aggregates,
             .choices = names_of(parallel::aggregates())},
            {"ps.servers",
             int64_t{0},
             "ps: number of ranks, the last ones, that only serve while the others only train; 0: each rank does both",
             {0, 1023}},
            {.key = "ps.update",
             .default_value = text(kUpdates.front().name),
             .doc = "ps: which ranks update the weights; worker: each rank that trains, with the gradients that it "
                    "pulls; server: the server of each part, which alone holds that part's optimizer state, and the "
                    "others pull weights; ps.mode=async implies server",
             .choices = names_of(kUpdates)},
            {.key = "ps.mode",
             .default_value = text(kModes.front().name),
             .doc =
                 "ps: whether the ranks that train wait for each other in each step; async: the servers update, and a "
                 "rank goes on with weights that lack at most ps.staleness updates; needs head.parallel=replicated",
             .choices = names_of(kModes)},
            {"ps.staleness",
             int64_t{2},
             "ps.mode=async: most steps that a rank may be ahead of the slowest one; its weights then lack at most as "
             "many updates, and it holds memory for as many gradients more; 0: as ps.mode=sync",
             {0, 1023}},
            {"local_sgd.every",
             int64_t{16},
             "local-sgd: steps from one mean of the ranks' models to the next; a test and a save make one too",
             {1, 1e9}},
            {"diloco.every",
             int64_t{50},
             "diloco: steps from one outer step to the next; a test and a save make one too",
             {1, 1e9}},
            {"diloco.lr", 0.7, "diloco: learning rate of the outer steps", kPositive},
            {"diloco.momentum", 0.9, "diloco: Nesterov momentum of the outer steps", kDecay},
            {"fsdp.shard",
             int64_t{0},
             "ranks among which the parameters are divided, a divisor of ranks; the others hold copies; 0: all ranks",
             {0, 1024}},
            {.key = "fsdp.reshard",
             .default_value = text("true"),
             .doc = "release a block after forward, and gather it again for backward; N: from N neighbours, a divisor "
                    "of the ranks that divide the parameters, which keep parts of it meanwhile",
             .choices = {"true", "false"},
             .aliases = {{"yes", "true"}, {"on", "true"}, {"no", "false"}, {"off", "false"}},
             .other = {"a whole number 2..1024", read_neighbours}},
            {"fsdp.prefetch", true, "gather the next block while one runs"},
            {"comm.init_timeout", 300.0, "seconds that ranks wait for each other at the start", kSeconds},
            {"comm.timeout", 120.0, "seconds that ranks wait for each other in an operation", kSeconds},
            {"comm.check", false,
             "compare every collective call with the calls of the other ranks before it is made; slow, for debugging"},
            {.key = "comm.transport",
             .default_value = text("auto"),
             .doc =
                 "how processes exchange CPU tensors; auto: through shared memory if all ranks of a group are on one "
                 "host, else over sockets; sockets: always so",
             .choices = names_of(kTransports)}},
       .read = read_parallel,
       .check = check_parallel,
       .idle = {
           {{"comm.check", "comm.transport", "comm.timeout", "comm.init_timeout"},
            [](const Job& job) { return job.parallel.strategy->is_one_process; },
            "with replicas of one process, which send nothing"},
           {{"comm.check", "ps.update", "ps.mode", "ps.staleness", "local_sgd.every", "comm.transport"},
            [](const Job& job) { return job.parallel.ranks == 1; },
            "with one rank"},
           {{"comm.transport"}, [](const Job&) { return !launch_of_processes(); }, "except between processes"},
           {{"fsdp.shard", "fsdp.reshard", "fsdp.prefetch"}, is_of_another<kFsdp>, "except with parallel=fsdp"},
           {{"ps.aggregate", "ps.servers", "ps.update", "ps.mode"}, is_of_another<kPs>, "except with parallel=ps"},
           {{"ps.staleness"}, [](const Job& job) { return !job.parallel.is_async; }, "except with ps.mode=async"},
           {{"ps.update"},
            [](const Job& job) { return job.parallel.is_async; },
            "with ps.mode=async, where servers update"},
           {{"local_sgd.every"}, is_of_another<kLocalSgd>, "except with parallel=local-sgd"},
           {{"diloco.every", "diloco.lr", "diloco.momentum"}, is_of_another<kDiloco>, "except with parallel=diloco"}}};
  return section;
}

}  // namespace tandem::job
