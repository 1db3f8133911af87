#include <algorithm>

#include "tandem/base/format.h"
#include "tandem/job/job.h"
#include "tandem/job/sections/choice.h"
#include "tandem/job/sections/section.h"
#include "tandem/settings/value.h"

// Settings of the strategies whose gradients travel in buckets.
namespace tandem::job {
namespace {

struct Unused {
  bool find = false, is_static = false;
};

constexpr std::array<Choice<Unused>, 3> kUnused = {
    {{"error", {}}, {"find", {.find = true}}, {"static", {.is_static = true}}}};

constexpr std::array<Choice<bool>, 2> kBuffers = {{{"tests", false}, {"steps", true}}};  // broadcast before each step

void read_ddp(settings::Settings& settings, Job& job) {
  auto& ddp = job.parallel.strategy_options.ddp;
  ddp.bucket_bytes = parse_bytes(settings.get_string("ddp.bucket")).value();
  ddp.first_bucket_bytes = std::min(ddp.first_bucket_bytes, ddp.bucket_bytes);
  ddp.gradient_as_bucket_view = settings.get_bool("ddp.bucket_view");
  const auto unused = chosen(kUnused, settings.get_string("ddp.unused"));
  ddp.find_unused_parameters = unused.find;
  ddp.static_graph = unused.is_static;
  ddp.broadcast_buffers = chosen(kBuffers, settings.get_string("ddp.buffers"));
  ddp.hook = &parallel::gradient_hook(settings.get_string("ddp.hook"));
  ddp.hook_rank = settings.get_int("ddp.rank");
  job.parallel.strategy_options.post_local_sgd = {.start = settings.get_int("ddp.local_start"),
                                                  .every = settings.get_int("ddp.local_every")};
}

bool goes_apart(const Job& job) { return job.parallel.strategy_options.ddp.hook_kind().goes_apart; }

}  // namespace

const Section& ddp_section() {
  static const auto hooks = docs_of(parallel::gradient_hooks(), "how the gradients of a bucket are summed");
  static const std::vector<std::string_view> of_several_ranks = {
      "ddp.bucket", "ddp.bucket_view", "ddp.buffers", "ddp.hook", "ddp.rank", "ddp.local_start", "ddp.local_every"};
  static const Section section = {
      .rows = {{.key = "ddp.bucket",
                .default_value = text("25M"),
                .doc = "bytes of gradients that travel together; the first bucket has at most 1M",
                .other = settings::kSizes},
               {"ddp.bucket_view", true,
                "store gradients inside the buckets; false: store them separately, which takes as many bytes again"},
               {.key = "ddp.unused",
                .default_value = text(kUnused.front().name),
                .doc = "what happens if a step gives parameters no gradient; error: the step fails and names them; "
                       "find: allowed; static: allowed, if each step leaves out those of the first step",
                .choices = names_of(kUnused)},
               {.key = "ddp.buffers",
                .default_value = text(kBuffers.front().name),
                .doc =
                    "when all ranks get rank 0's buffers, such as running statistics; tests: before tests and saves; "
                    "steps: before each step too",
                .choices = names_of(kBuffers)},
               {.key = "ddp.hook",
                .default_value = text(parallel::gradient_hooks().front().name),
                .doc = hooks,
                .choices = names_of(parallel::gradient_hooks())},
               {"ddp.rank",
                int64_t{2},
                "ddp.hook=powersgd: columns of each of the two narrow matrices whose product travels in place of a "
                "gradient",
                {1, 1024}},
               {"ddp.local_start", int64_t{1000},
                "ddp.hook=post-local-sgd: steps whose gradients are summed before the ranks train apart", kCount},
               {"ddp.local_every",
                int64_t{16},
                "ddp.hook=post-local-sgd: steps from one mean of the ranks' models to the next; a test and a save make "
                "one too",
                {1, 1e9}}},
      .read = read_ddp,
      .idle = {{of_several_ranks, [](const Job& job) { return job.parallel.ranks == 1; }, "with one rank"},
               {of_several_ranks, [](const Job& job) { return job.parallel.batch_ranks() == 1; },
                "with one rank along data"},
               {{"ddp.bucket", "ddp.bucket_view", "ddp.buffers"},
                [](const Job& job) { return job.training.shards > 0; },
                "with train.shards"},
               {{"ddp.rank"},
                [](const Job& job) { return !job.parallel.strategy_options.ddp.hook_kind().has_rank; },
                "except with ddp.hook=powersgd"},
               {{"ddp.local_start", "ddp.local_every"},
                [](const Job& job) { return !goes_apart(job); },
                "except with ddp.hook=post-local-sgd"}}};
  return section;
}

}  // namespace tandem::job
