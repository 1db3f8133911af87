#include "tandem/job/sections/model.h"

#include "tandem/job/job.h"
#include "tandem/job/sections/section.h"
#include "tandem/memory/activation.h"
#include "tandem/models/model.h"

namespace tandem::job {
namespace {

void read(settings::Settings& settings, Job& job) {
  const auto& name = settings.get_string("model");
  job.model = {.name = name,
               .is_identity = models::is_identity(name),
               .embedding = settings.get_int("embedding"),
               .norm = models::norm_of(settings.get_string("model.norm")),
               .activation = settings.get_string("model.activation"),
               .dropout = settings.get_float("model.dropout")};
}

}  // namespace

const Section& model_section() {
  const auto names = models::model_names(), norms = models::norm_names();
  static const Section section = {
      .rows = {{.key = "model",
                .default_value = text("resnet_glyph"),
                .doc = "backbone; none: no backbone, the head sees the raw pixels",
                .choices = {names.begin(), names.end()}},
               {"embedding",
                int64_t{128},
                "size of an embedding, the feature vector of an image and input of the head",
                {1, 65536}},
               {.key = "model.norm",
                .default_value = text("batch"),
                .doc = "normalisation after each convolution; group: 16 channels of one image; abn: batch "
                       "normalisation and its activation in place; sync: batch normalisation over all ranks' images",
                .choices = {norms.begin(), norms.end()}},
               {.key = "model.activation",
                .default_value = text("relu"),
                .doc = "activation of the backbone; naive: autograd keeps each step; merged: only the input is kept; "
                       "fused: also one pass over memory",
                .choices = memory::activation_names()},
               {"model.dropout",
                0.0,
                "part of the features set to 0 in training, before the embedding; mlp: after each activation",
                {0, 1, false, true}}},
      .read = read,
      .idle = {{{"model.norm", "model.activation", "model.dropout"},
                [](const Job& job) { return job.model.is_identity; },
                "with model=none: it has no layers"},
               {{"model.norm"},
                [](const Job& job) { return !job.model.is_identity && !models::has_norms(job.model.name); },
                "on this model: it has no normalisation"},
               {{"model.activation"},
                [](const Job& job) { return models::has_own_activation(job.model.norm); },
                "with this model.norm: its activation is a part of it"}},
      .identity = {"model", "embedding", "model.norm", "model.activation", "model.dropout"}};
  return section;
}

}  // namespace tandem::job
