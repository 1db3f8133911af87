#include "tandem/job/sections/evaluation.h"

#include "tandem/job/job.h"
#include "tandem/job/sections/section.h"

namespace tandem::job {
namespace {

void read_evaluation(settings::Settings& settings, Job& job) {
  job.evaluation = {.every = settings.get_int("eval.every"),
                    .batch = settings.get_int("eval.batch"),
                    .pairs = settings.get_list("eval.pairs")};
}

}  // namespace

const Section& evaluation_section() {
  static const Section section = {
      .rows = {{"eval.every", int64_t{1}, "epochs between two tests; 0: only at the end", kCount},
               {"eval.batch", int64_t{256}, "images per test batch, over all ranks", {1, 1e9}},
               {"eval.pairs", std::vector<std::string>(),
                "files of image pairs for verification after training, in the format of InsightFace's lfw.bin"}},
      .read = read_evaluation,
      .in_use = {"eval.batch"},
      .in_use_on_data = {"eval.pairs"}};
  return section;
}

}  // namespace tandem::job
