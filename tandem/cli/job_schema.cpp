#include "tandem/cli/job_schema.h"

#include "tandem/settings/value.h"

namespace tandem::cli {
namespace {

constexpr settings::Range kPositive{0, std::numeric_limits<double>::infinity(), true};
constexpr settings::Range kNotNegative{0};
constexpr settings::Range kSeconds{0, 99999, true};
constexpr settings::Range kFraction{0, 1};
constexpr settings::Range kDecay{0, 1, false, true};
constexpr settings::Range kCount{0, 1e12};
const std::vector<std::string> kNoTexts;
const std::vector<double> kNoNumbers;

std::optional<std::string> read_data_folder(std::string_view text) {
  for (const auto prefix : {kImagesPrefix, kFacesPrefix, kMarketPrefix}) {
    if (text.starts_with(prefix) && text.size() > prefix.size()) return std::string(text);
  }
  return std::nullopt;
}

std::optional<std::string> read_class_count(std::string_view text) {
  const auto count = settings::read_integer(text);
  if (!count || *count < 10 || *count > 93773) return std::nullopt;
  return std::to_string(*count);
}

std::optional<std::string> read_folder(std::string_view text) {
  if (text.empty()) return std::nullopt;
  return std::string(text);
}

std::string text(std::string_view value) { return std::string(value); }

const std::vector<settings::Setting>& job_settings() {
  static const std::vector<settings::Setting> settings = {
      {"ranks",
       int64_t{1},
       "ranks that train together in this process; leave it out under a launcher, where another number is an error",
       {1, 1024}},
      {.key = "data",
       .default_value = text("glyphs"),
       .doc = "what to learn: characters drawn from fonts, noise to measure with, a folder of images with a "
              "sub-folder a class, InsightFace's records, or Market-1501's folders",
       .choices = {"glyphs", "synthetic"},
       .other = {"images:DIR|faces:DIR|market1501:DIR", read_data_folder}},
      {.key = "data.classes",
       .default_value = text("gb2312"),
       .doc = "characters to tell apart: a set by name, or the first so many",
       .choices = {"gb2312", "uro", "all"},
       .other = {"a whole number 10..93773", read_class_count}},
      {"data.size",
       int64_t{32},
       "side of an image in pixels; glyphs: at most 256; market1501: the height, twice the width; faces, when it is "
       "not "
       "given: as the folder's property says",
       {8, 1024}},
      {"data.train_fonts", kNoTexts,
       "fonts to learn from; empty: all standard ones that are installed and not held out"},
      {"data.test_fonts", kNoTexts, "fonts held out for the test; empty: ukai, zenhei and noto-serif where installed"},
      {"data.affine", 0.08, "augmentation: standard deviation of the random affine map's entries", {0, 0.3}},
      {"data.shift", 0.06, "augmentation: largest random shift, as a part of the image's side", kFraction},
      {"data.blur", 0.0, "augmentation: chance that an image is blurred", kFraction},
      {"data.noise", 0.0, "augmentation: standard deviation of the pixels' noise; white less black is 1", kFraction},
      {"data.hold_out",
       int64_t{5},
       "image folder without a test folder, faces: every Nth image of each class becomes test data; faces, 0: none",
       {0, 1e9}},
      {"data.unseen", int64_t{0},
       "glyphs: keep this many characters out of training, and test retrieval on them afterwards: one held-out font "
       "draws the queries, all other fonts the gallery",
       kCount},
      {"data.prefetch", int64_t{2}, "batches made ahead of the training, a rank", {0, 1024}},
      {.key = "model",
       .default_value = text("resnet_glyph"),
       .doc = "backbone; none: no backbone, the head sees the raw pixels",
       .choices = {"resnet_glyph", "resnet18", "resnet34", "resnet50", "mlp", "none"}},
      {"embedding", int64_t{128}, "numbers that describe an image, the head's input", {1, 65536}},
      {.key = "head",
       .default_value = text("cosface"),
       .doc = "classifier's loss",
       .choices = {"softmax", "normalised", "cosface", "arcface", "combined", "sphereface", "l-softmax"},
       .aliases = {{"am-softmax", "cosface"}, {"a-softmax", "sphereface"}, {"normalized", "normalised"}}},
      {"head.classes", int64_t{0}, "classes of the head; 0: as many as the data has", kCount},
      {.key = "head.parallel",
       .default_value = text("sharded"),
       .doc = "classes split over the ranks, or all logits gathered on rank 0",
       .choices = {"sharded", "naive"}},
      {"head.margin", 0.2, "cosface: subtracted from the target's cosine; arcface: added to its angle, radians",
       kNotNegative},
      {"head.margins", std::vector<double>{1, 0.3, 0.2},
       "combined: multiplies the target's angle, is added to it, is subtracted from its cosine", kNotNegative},
      {"head.factor", 4.0, "sphereface and l-softmax: multiplies the target's angle", kPositive},
      {"head.anneal", std::vector<double>{1500, 0.1, 1, 5},
       "sphereface and l-softmax: the cosine's weight beside the margin is max(d, a * (1 + b * step)^-c) for a,b,c,d",
       kNotNegative},
      {"head.scale", 24.0, "multiplies the cosines of normalised, cosface, arcface and combined", kPositive},
      {.key = "head.beyond",
       .default_value = text("extend"),
       .doc = "what the target's score does past an angle of pi: goes on falling, rises again, falls along a line, has "
              "no margin where the cosine is negative, or stays",
       .choices = {"extend", "cosine", "linear", "easy", "clamp"}},
      {.key = "head.gradient",
       .default_value = text("exact"),
       .doc = "the margin's own derivative, or 1 as if the margin were a constant",
       .choices = {"exact", "detached"}},
      {"head.filter",
       1.0,
       "other classes' scores with a greater cosine count as 0, for wrong labels; 1: none",
       {-1, 1, true}},
      {"head.smoothing", 0.0, "label smoothing over all classes", kDecay},
      {"head.sample", 1.0, "part of the classes that a step scores, besides the batch's own; 1: all", {0, 1, true}},
      {"head.log_q", false,
       "sampled classes' exponentials count 1 / head.sample times, so that their sum is expected to be that of all"},
      {.key = "head.lazy",
       .default_value = text("off"),
       .doc = "classes that a step does not score; off: they stay as they are; exact: the momentum and weight decay of "
              "SGD that they missed are applied when they are next used",
       .choices = {"off", "exact"}},
      {"head.fused_update", false,
       "the optimizer's step of the head inside backward, block by block: no gradient of its weight is kept"},
      {.key = "head.precision",
       .default_value = text("float32"),
       .doc = "type of the head's products; sums, losses and weights stay as train.precision says",
       .choices = {"float32", "bf16"}},
      {.key = "head.keep_bytes",
       .default_value = text("128M"),
       .doc = "scores that a rank keeps for backward; the others are computed again",
       .other = {"bytes as 512, 64M or 2G", settings::read_size}},
      {"train.epochs", int64_t{3}, "passes over the training images", kCount},
      {"train.steps", int64_t{0}, "steps to train; 0: as many as the epochs have", kCount},
      {"train.batch", int64_t{128}, "images a step, over all ranks", {1, 1e9}},
      {.key = "train.optimizer",
       .default_value = text("sgd"),
       .doc = "what turns gradients into steps",
       .choices = {"sgd", "adamw"}},
      {"train.lr", 0.3, "learning rate at its highest", kNotNegative},
      {"train.momentum", 0.9, "SGD: momentum", kDecay},
      {"train.nesterov", true, "SGD: Nesterov's momentum; wants a momentum above 0"},
      {"train.weight_decay", 5e-4, "pull of the weights towards 0", kNotNegative},
      {"train.beta1", 0.9, "AdamW: decay of the mean", kDecay},
      {"train.beta2", 0.999, "AdamW: decay of the mean square", kDecay},
      {.key = "train.schedule",
       .default_value = text("onecycle"),
       .doc = "how the learning rate goes over the steps",
       .choices = {"onecycle", "cosine", "step", "constant"}},
      {"train.warmup", 0.3,
       "part of the steps in which the learning rate rises; schedules but onecycle have none unless this is set",
       kFraction},
      {"train.milestones", kNoNumbers, "step schedule: epochs at which the learning rate falls", kNotNegative},
      {"train.gamma", 0.1, "step schedule: the learning rate's factor at a milestone", kFraction},
      {"train.clip", 0.0, "largest norm of all gradients together; 0: no clipping", kNotNegative},
      {"train.skip_nonfinite", int64_t{0},
       "steps in a row that are left out, with nothing changed, when their loss or gradients are not finite", kCount},
      {.key = "train.precision",
       .default_value = text("float32"),
       .doc = "numbers to compute in; bf16: float32 weights, bfloat16 products",
       .choices = {"float32", "bf16", "float64"}},
      {"train.log_every", int64_t{20}, "steps between two reports of the loss", {1, 1e12}},
      {"eval.every", int64_t{1}, "epochs between two tests; 0: at the end only", kCount},
      {"eval.pairs", kNoTexts, "files of pairs of images to tell apart after training, as InsightFace's lfw.bin"},
      {"eval.batch", int64_t{256}, "images tested at once, over all ranks", {1, 1e9}},
      {"seed", int64_t{1}, "random seed", kCount},
      {"out", text(""), "the run's folder; empty: runs/<date>-<letter>"},
      {.key = "resume",
       .default_value = text("none"),
       .doc = "continue: from the newest good checkpoint in `out`, from a folder, or not",
       .choices = {"none", "auto"},
       .other = {"a folder", read_folder}},
      {"checkpoint.every", int64_t{0}, "steps between two checkpoints; 0: at the end of each epoch", kCount},
      {"checkpoint.keep", int64_t{2}, "newest checkpoints that stay", {1, 1e6}},
      {"comm.init_timeout", 300.0, "seconds that ranks wait for each other at the start", kSeconds},
      {"comm.timeout", 120.0, "seconds that ranks wait for each other in an operation", kSeconds},
      {"comm.check", false, "compare every collective call with the other ranks' before it is made; slow"},
      {"report.compare", true, "measure the other form of the head as well, for the report's memory figure"},
      {.key = "memory.limit",
       .default_value = kNoTexts,
       .doc = "bytes that each rank may use, as 8G,16G; one for all: the same; the head's classes are split to fit",
       .other = {"bytes as 512, 64M or 2G", settings::read_size}},
      {"threads", int64_t{0}, "threads a rank computes with; 0: cores / ranks", {0, 1024}},
  };
  return settings;
}

}  // namespace

settings::Schema job_schema() { return job_settings(); }

}  // namespace tandem::cli
