#include "tandem/job/sections/evaluation.h"

#include "tandem/job/job.h"
#include "tandem/job/sections/section.h"

namespace tandem::job {
namespace {

void read_evaluation(settings::Settings& settings, Job& job) {
  job.evaluation = {.every = settings.get_int("eval.every"),
                    .batch = settings.get_int("eval.batch"),
                    .pairs = settings.get_list("eval.pairs"),
                    .verifies = settings.get_bool("eval.verify"),
                    .identifies = settings.get_bool("eval.identify")};
}

}  // namespace

const Section& evaluation_section() {
  static const Section section = {
      .rows = {{"eval.every", int64_t{1}, "epochs between two tests; 0: only at the end", kCount},
               {"eval.batch", int64_t{256}, "images per test batch, over all ranks", {1, 1e9}},
               {"eval.pairs", std::vector<std::string>(),
                "files of image pairs for verification after training, in the format of InsightFace's lfw.bin"},
               {"eval.verify", false,
                "compare the features of all test images with each other: true accept rates at false accept rates of "
                "1e-6 to 1e-3"},
               {"eval.identify", false,
                "search the test images by their features among one of each class, the first: shares found at the "
                "first 1, 5 and 10 places"}},
      .read = read_evaluation,
      .in_use = {"eval.batch"},
      .in_use_on_data = {"eval.pairs", "eval.verify", "eval.identify"}};
  return section;
}

}  // namespace tandem::job
