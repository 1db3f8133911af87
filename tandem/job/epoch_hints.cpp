#include "tandem/job/epoch_hints.h"

#include "tandem/base/format.h"

namespace tandem::job {

std::vector<std::string> epoch_hints(const Training& training, int64_t images, int64_t steps_per_epoch) {
  constexpr int64_t kNotable = 100, kFewSteps = 100;
  const int64_t batch = training.batch, epochs = training.epochs;
  const int64_t left_out = images - steps_per_epoch * batch, steps = epochs * steps_per_epoch;
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
  return lines;
}

}  // namespace tandem::job
