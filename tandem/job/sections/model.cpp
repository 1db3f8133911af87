#include "tandem/job/sections/model.h"

#include "tandem/job/job.h"
#include "tandem/job/sections/section.h"
#include "tandem/models/model.h"

namespace tandem::job {
namespace {

void read(settings::Settings& settings, Job& job) {
  const auto& name = settings.get_string("model");
  job.model = {.name = name, .is_identity = models::is_identity(name), .embedding = settings.get_int("embedding")};
}

}  // namespace

const Section& model_section() {
  const auto names = models::model_names();
  static const Section section = {
      .rows = {{.key = "model",
                .default_value = text("resnet_glyph"),
                .doc = "backbone; none: no backbone, the head sees the raw pixels",
                .choices = {names.begin(), names.end()}},
               {"embedding",
                int64_t{128},
                "size of an embedding, the feature vector of an image and input of the head",
                {1, 65536}}},
      .read = read,
      .identity = {"model", "embedding"}};
  return section;
}

}  // namespace tandem::job
