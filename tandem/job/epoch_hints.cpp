#include "tandem/job/epoch_hints.h"

#include "tandem/base/format.h"
#include "tandem/search/collapse_guard.h"

namespace tandem::job {

namespace {

void add_search_hints(const Job& job, int64_t steps, int64_t steps_per_epoch, std::vector<std::string>& lines) {
  if (job.search->first_step(steps_per_epoch) >= steps) {
    lines.push_back("the alphas stay as they begin: search.warmup lasts as long as the search");
  }
  const int64_t test_every = job.evaluation.every * steps_per_epoch;
  const int64_t tests = test_every > 0 ? (steps + test_every - 1) / test_every : 1;
  if (const auto first = search::GuardOptions().first; job.search->is_guarded && tests < first) {
    lines.push_back("search.guard never acts: it does so from test " + format_count(first) + " on, and there will be " +
                    format_count(tests) + "; a test comes after each eval.every epochs");
  }
}

}  // namespace

std::vector<std::string> epoch_hints(const Job& job, int64_t images, int64_t steps_per_epoch) {
  constexpr int64_t kNotable = 100, kFewSteps = 100;
  const auto& training = job.training;
  const int64_t batch = training.batch, epochs = training.epochs;
  const int64_t left_out = images - steps_per_epoch * batch, steps = epochs * steps_per_epoch;
  const int64_t all_steps = training.steps > 0 ? training.steps : steps;
  std::vector<std::string> lines;
  if (left_out * kNotable >= images && left_out > 0) {
    lines.push_back("each epoch leaves out " + format_count(left_out) + " of " + format_count(images) +
                    " images, others each time: they fill no batch of " + format_count(batch) +
                    "; a smaller train.batch leaves out fewer");
  }
  if (training.steps == 0 && steps < kFewSteps) {
    lines.push_back("training is " + format_count(steps) + " steps in all (train.epochs is " + format_count(epochs) +
                    ", " + format_count(steps_per_epoch) +
                    " an epoch), too few to learn much: raise train.epochs, set train.steps, or lower train.batch");
  }
  if (job.search) add_search_hints(job, all_steps, steps_per_epoch, lines);
  return lines;
}

}  // namespace tandem::job
