#include "tandem/base/error.h"
#include "tandem/job/job.h"
#include "tandem/job/sections/choice.h"
#include "tandem/job/sections/section.h"
#include "tandem/parallel/aggregation.h"

// Settings of the parameter server.
namespace tandem::job {
namespace {

constexpr std::array<Choice<bool>, 2> kUpdates = {{{"worker", false}, {"server", true}}};  // the servers step
constexpr std::array<Choice<bool>, 2> kModes = {{{"sync", false}, {"async", true}}};       // workers do not wait

void read_ps(settings::Settings& settings, Job& job) {
  job.parallel.is_async = !is_idle(job, "ps.mode") && chosen(kModes, settings.get_string("ps.mode"));
  const bool updates = chosen(kUpdates, settings.get_string("ps.update"));
  job.parallel.strategy_options.ps = {.aggregate = &parallel::aggregate_of(settings.get_string("ps.aggregate")),
                                      .servers = static_cast<int>(settings.get_int("ps.servers")),
                                      .servers_update = job.parallel.is_async || updates,
                                      .staleness = job.parallel.is_async ? settings.get_int("ps.staleness") : 0};
}

void check_aggregate(const Job& job) {
  const auto& aggregate = *job.parallel.strategy_options.ps.aggregate;
  const auto shares = job.parallel.shares(job.parallel.ranks);
  const int ranks = shares.ranks, workers = shares.workers();
  if (is_idle(job, "ps.aggregate") || workers >= aggregate.least_ranks) return;
  const auto servers = workers < ranks ? " and ps.servers " + std::to_string(ranks - workers) : "";
  throw SettingsError("ps.aggregate is " + std::string(aggregate.name) + " with ranks " + std::to_string(ranks) +
                      servers + ", wanted " + std::to_string(aggregate.least_ranks) + " ranks or more" +
                      (servers.empty() ? "" : " that train"));
}

}  // namespace

const Section& ps_section() {
  static const auto aggregates = docs_of(parallel::aggregates(), "ps: how the ranks' gradients are combined");
  static const Section section = {
      .rows =
          {{.key = "ps.aggregate",
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
            {0, 1023}}},
      .read = read_ps,
      .check = check_aggregate,
      .idle = {{{"ps.update", "ps.mode", "ps.staleness"},
                [](const Job& job) { return job.parallel.ranks == 1; },
                "with one rank"},
               {{"ps.update", "ps.mode", "ps.staleness"},
                [](const Job& job) { return job.parallel.batch_ranks() == 1; },
                "with one rank along data"},
               {{"ps.staleness"}, [](const Job& job) { return !job.parallel.is_async; }, "except with ps.mode=async"},
               {{"ps.update"},
                [](const Job& job) { return job.parallel.is_async; },
                "with ps.mode=async, where servers update"}}};
  return section;
}

}  // namespace tandem::job
