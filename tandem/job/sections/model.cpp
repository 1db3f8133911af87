#include "tandem/job/sections/model.h"

#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/base/suggest.h"
#include "tandem/job/job.h"
#include "tandem/job/sections/choice.h"
#include "tandem/job/sections/section.h"
#include "tandem/memory/activation.h"
#include "tandem/models/genotype.h"
#include "tandem/models/model.h"
#include "tandem/models/space.h"
#include "tandem/storage/named_file.h"

namespace tandem::job {
namespace {

constexpr std::string_view kDrawn = "none";

std::optional<std::string> read_path(std::string_view text) {
  if (text.empty()) return std::nullopt;
  return std::string(text);
}

constexpr std::string_view kGenotypeFile = "genotype:";

/// In one form, however it was written.
std::string cells_of(std::string_view text, const std::string& source) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin != text.npos && models::is_bench_201(text.substr(begin))) {
    return models::to_bench_201_text(models::parse_bench_201(text, source));
  }
  return models::to_text(models::parse_genotype(text, source));
}

/// A genotype, or a file with one: what counts is what is in it. Or the model of a search.
std::optional<std::string> read_cells(std::string_view text) {
  if (text.starts_with(kGenotypeFile)) {
    const std::filesystem::path path(text.substr(kGenotypeFile.size()));
    const auto content = storage::read_named_file("a genotype", path, models::kMostGenotypeBytes);
    return cells_of(content, path.string());
  }
  if (models::is_supernet(text)) {
    const auto names = models::supernet_names();
    if (std::ranges::find(names, text) == names.end()) {
      throw SettingsError("model is " + quote(text) + ", wanted " + one_of(names));
    }
    return std::string(text);
  }
  if (!models::has_cells(text)) return std::nullopt;
  return cells_of(text, "model");
}

constexpr std::array<Choice<models::Stem>, 2> kStems = {
    {{"cifar", models::Stem::cifar}, {"imagenet", models::Stem::imagenet}}};

models::ModelOptions sizes_of(const Model& model, const std::array<int64_t, 3>& image) {
  return {.name = model.name,
          .channels = image[0],
          .size = image[1],
          .width = image[2],
          .embedding = model.embedding,
          .cells = model.cells,
          .cell_channels = model.channels,
          .stem = model.stem,
          .patch = model.patch,
          .heads = model.heads,
          .search_method = model.search_method,
          .search_partial = model.search_partial};
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
               .cells = settings.get_int("model.cells"),
               .channels = settings.get_int("model.channels"),
               .stem = chosen(kStems, settings.get_string("model.stem")),
               .auxiliary = settings.get_float("model.auxiliary"),
               .drop_path = settings.get_float("model.drop_path"),
               .patch = settings.get_int("model.patch"),
               .heads = settings.get_int("model.heads"),
               .divides_tokens = settings.get_bool("model.sequence_parallel"),
               .search_method = settings.get_string("search.method"),
               .search_partial = settings.get_int("search.partial"),
               .freeze = settings.get_list("model.freeze"),
               .weights = weights == kDrawn ? "" : weights,
               .weights_prefix = settings.get_string("model.weights_prefix")};
  if (models::is_supernet(name)) job.model.auxiliary = job.model.drop_path = 0;
  job.model.features = models::dim_of(sizes_of(job.model, job.data.source->image_shape(job)));
}

/// What only some models have.
std::vector<std::string_view> identity_of_model(const Job& job) {
  if (models::has_patches(job.model.name)) return {"model.patch", "model.heads"};
  if (!models::has_cells(job.model.name)) return {};
  if (models::is_supernet(job.model.name)) return {"model.cells", "model.channels", "model.stem"};
  return {"model.cells", "model.channels", "model.stem", "model.auxiliary", "model.drop_path"};
}

}  // namespace

const Section& model_section() {
  const auto names = models::model_names(), norms = models::norm_names();
  static const Section section =
      {.rows =
           {{.key = "model",
             .default_value = text("resnet_glyph"),
             .doc = "backbone; none: no backbone, the head sees the raw pixels; those of darts-v1 to amoebanet are "
                    "of cells; search:darts: all cells of a space at once, to search",
             .choices = {names.begin(), names.end()},
             .other = {"genotype:FILE|search:SPACE", read_cells}},
            {"embedding",
             int64_t{128},
             "size of an embedding, the feature vector of an image and input of the head; 0: the backbone's "
             "features are "
             "it; models of cells: 0 unless it is given",
             {0, 65536}},
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
            {"model.cells", int64_t{20}, "models of cells: how many", {3, 1000}},
            {"model.channels", int64_t{36}, "models of cells: channels of the first cells' operations", {2, 4096}},
            {.key = "model.stem",
             .default_value = text("cifar"),
             .doc = "models of cells: what comes before them; cifar: a convolution that keeps the image's size; "
                    "imagenet: three, which leave an eighth of it",
             .choices = names_of(kStems)},
            {"model.auxiliary",
             0.0,
             "models of cells: what the loss of a second classifier counts, which looks at two thirds of the cells "
             "while they are trained, such as 0.4; 0: there is none",
             {0, 10}},
            {"model.drop_path",
             0.0,
             "models of cells: fraction of the operations that training leaves out of each image by its end, from "
             "none at its beginning on",
             {0, 1, false, true}},
            {"model.patch", int64_t{16}, "vision transformers: pixels a side that make a token", {1, 1024}},
            {"model.heads",
             int64_t{0},
             "vision transformers: heads of the attention; 0: as published, 64 numbers a head",
             {0, 1024}},
            {"model.sequence_parallel", false,
             "vision transformers, with ranks along tensor: each has a part of the tokens between the layers, and of "
             "their memory"},
            {"model.ghost", int64_t{32}, "model.norm=ghost: images of a rank that share statistics", {1, 1e9}},
            {"model.zero_gamma", false,
             "residual networks: the last norm of each block starts at 0, so that the block starts as its shortcut"},
            {"model.freeze", std::vector<std::string>(),
             "do not train parameters whose names begin with one of these, such as conv1,bn1,layer1"},
            {.key = "model.weights",
             .default_value = text(kDrawn),
             .doc = "weights that a new run starts from; none: drawn by the seed; a file: safetensors, or the index of "
                    "several; a folder: a run or one of its checkpoints",
             .choices = {kDrawn},
             .other = {"a file or folder", read_path}},
            {"model.weights_prefix", text(""),
             "model.weights: which of several models in the file to read, by the beginning of its names there, such "
             "as teacher; empty: the one that there is"}},
       .read = read_model,
       .idle =
           {{{"model.cells", "model.channels", "model.stem"},
             [](const Job& job) { return !models::has_cells(job.model.name); },
             "except with models of cells"},
            {{"model.auxiliary", "model.drop_path"},
             [](const Job& job) { return !models::has_cells(job.model.name) || models::is_supernet(job.model.name); },
             "except with models of cells, and in no search"},
            {{"model.auxiliary", "model.stem"},
             [](const Job& job) { return models::is_bench_201(job.model.name); },
             "in the network of NAS-Bench-201"},
            {{"model.activation", "model.zero_gamma"},
             [](const Job& job) { return models::has_cells(job.model.name); },
             "with models of cells"},
            {{"model.patch", "model.heads"},
             [](const Job& job) { return !models::has_patches(job.model.name); },
             "except with vision transformers"},
            {{"model.sequence_parallel"},
             [](const Job& job) { return !models::has_patches(job.model.name) || job.parallel.tensor == 1; },
             "except with vision transformers and several ranks along tensor"},
            {{"model.zero_gamma"},
             [](const Job& job) { return models::has_patches(job.model.name); },
             "with vision transformers"},
            {{"model.norm", "model.activation", "model.dropout", "model.freeze"},
             [](const Job& job) { return job.model.is_identity; },
             "with model=none: it has no layers"},
            {{"model.norm", "model.zero_gamma"},
             [](const Job& job) { return !models::has_norms(job.model.name); },
             "on this model: it has no normalisation"},
            {{"model.zero_gamma"},
             [](const Job& job) { return job.model.norm == models::Norm::none; },
             "with model.norm=none"},
            {{"model.ghost"},
             [](const Job& job) { return job.model.norm != models::Norm::ghost || !models::has_norms(job.model.name); },
             "except with model.norm=ghost"},
            {{"model.freeze"}, [](const Job& job) { return job.model.freeze.empty(); }, "when it is empty"},
            {{"model.weights_prefix"},
             [](const Job& job) { return job.model.weights.empty(); },
             "without model.weights"},
            {{"model.activation"},
             [](const Job& job) { return models::has_own_activation(job.model.norm); },
             "with this model.norm: its activation is a part of it"}},
       .identity = {"model", "embedding", "model.norm", "model.activation", "model.dropout", "model.ghost"},
       .more_identity = identity_of_model};
  return section;
}

}  // namespace tandem::job
