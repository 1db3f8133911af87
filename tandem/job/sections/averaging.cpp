#include "tandem/job/job.h"
#include "tandem/job/sections/section.h"

// Settings of the strategies that average models.
namespace tandem::job {
namespace {

void read_averaging(settings::Settings& settings, Job& job) {
  auto& options = job.parallel.strategy_options;
  options.local_sgd.every = settings.get_int("local_sgd.every");
  options.diloco.every = settings.get_int("diloco.every");
  options.diloco.outer = {.learning_rate = settings.get_float("diloco.lr"),
                          .momentum = settings.get_float("diloco.momentum")};
}

}  // namespace

const Section& averaging_section() {
  static const Section section = {
      .rows = {{"local_sgd.every",
                int64_t{16},
                "local-sgd: steps from one mean of the ranks' models to the next; a test and a save make one too",
                {1, 1e9}},
               {"diloco.every",
                int64_t{50},
                "diloco: steps from one outer step to the next; a test and a save make one too",
                {1, 1e9}},
               {"diloco.lr", 0.7, "diloco: learning rate of the outer steps", kPositive},
               {"diloco.momentum", 0.9, "diloco: Nesterov momentum of the outer steps", kDecay}},
      .read = read_averaging,
      .idle = {{{"local_sgd.every"}, [](const Job& job) { return job.parallel.ranks == 1; }, "with one rank"},
               {{"local_sgd.every"},
                [](const Job& job) { return job.parallel.batch_ranks() == 1; },
                "with one rank along data"}}};
  return section;
}

}  // namespace tandem::job
