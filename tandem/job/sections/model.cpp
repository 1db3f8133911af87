#include "tandem/job/sections/model.h"

#include "tandem/job/job.h"
#include "tandem/job/sections/section.h"
#include "tandem/memory/activation.h"
#include "tandem/models/model.h"

namespace tandem::job {
namespace {

constexpr std::string_view kDrawn = "none";

std::optional<std::string> read_path(std::string_view text) {
  if (text.empty()) return std::nullopt;
  return std::string(text);
}

void read_model(settings::Settings& settings, Job& job) {
  const auto &name = settings.get_string("model"), &weights = settings.get_string("model.weights");
  job.model = {.name = name,
               .is_identity = models::is_identity(name),
               .embedding = settings.get_int("embedding"),
               .norm = models::norm_of(settings.get_string("model.norm")),
               .activation = settings.get_string("model.activation"),
               .dropout = settings.get_float("model.dropout"),
               .ghost = settings.get_int("model.ghost"),
               .zero_gamma = settings.get_bool("model.zero_gamma"),
               .freeze = settings.get_list("model.freeze"),
               .weights = weights == kDrawn ? "" : weights,
               .weights_prefix = settings.get_string("model.weights_prefix")};
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
                       "normalisation and its activation in place; sync: batch normalisation over all ranks' images; "
                       "ghost: over model.ghost images of a rank at a time",
                .choices = {norms.begin(), norms.end()}},
               {.key = "model.activation",
                .default_value = text("relu"),
                .doc = "activation of the backbone; naive: autograd keeps each step; merged: only the input is kept; "
                       "fused: also one pass over memory",
                .choices = memory::activation_names()},
               {"model.dropout",
                0.0,
                "fraction of the features that training sets to 0 before the embedding; mlp: after each activation",
                {0, 1, false, true}},
               {"model.ghost", int64_t{32}, "model.norm=ghost: images of a rank that share statistics", {1, 1e9}},
               {"model.zero_gamma", false,
                "residual networks: the last norm of each block starts at 0, so that the block starts as its shortcut"},
               {"model.freeze", std::vector<std::string>(),
                "do not train parameters whose names begin with one of these, such as conv1,bn1,layer1"},
               {.key = "model.weights",
                .default_value = text(kDrawn),
                .doc =
                    "weights that a new run starts from; none: drawn by the seed; a file: safetensors, or the index of "
                    "several; a folder: a run or one of its checkpoints",
                .choices = {kDrawn},
                .other = {"a file or folder", read_path}},
               {"model.weights_prefix", text(""),
                "model.weights: which of several models in the file to read, by the beginning of its names there, such "
                "as teacher; empty: the one that there is"}},
      .read = read_model,
      .idle = {{{"model.norm", "model.activation", "model.dropout", "model.freeze"},
                [](const Job& job) { return job.model.is_identity; },
                "with model=none: it has no layers"},
               {{"model.norm", "model.zero_gamma"},
                [](const Job& job) { return !models::has_norms(job.model.name); },
                "on this model: it has no normalisation"},
               {{"model.zero_gamma"},
                [](const Job& job) { return job.model.norm == models::Norm::none; },
                "with model.norm=none"},
               {{"model.ghost"},
                [](const Job& job) {
                  return job.model.norm != models::Norm::ghost || !models::has_norms(job.model.name);
                },
                "except with model.norm=ghost"},
               {{"model.freeze"}, [](const Job& job) { return job.model.freeze.empty(); }, "when it is empty"},
               {{"model.weights_prefix"},
                [](const Job& job) { return job.model.weights.empty(); },
                "without model.weights"},
               {{"model.activation"},
                [](const Job& job) { return models::has_own_activation(job.model.norm); },
                "with this model.norm: its activation is a part of it"}},
      .identity = {"model", "embedding", "model.norm", "model.activation", "model.dropout", "model.ghost"}};
  return section;
}

}  // namespace tandem::job
