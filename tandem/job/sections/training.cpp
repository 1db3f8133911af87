#include "tandem/job/sections/training.h"

#include "tandem/base/error.h"
#include "tandem/job/job.h"
#include "tandem/job/sections/choice.h"
#include "tandem/job/sections/section.h"
#include "tandem/settings/value.h"

namespace tandem::job {
namespace {

constexpr std::array<Choice<Precision>, 4> kPrecisions = {{{"float32", {at::kFloat}},
                                                           {"bf16", {at::kFloat, at::kBFloat16}},
                                                           {"float16", {at::kFloat, at::kHalf}},
                                                           {"float64", {at::kDouble}}}};

constexpr std::string_view kAuto = "auto";

std::optional<std::string> read_scale(std::string_view text) {
  const auto number = settings::read_number(text);
  return number && *number > 0 ? std::optional(std::string(text)) : std::nullopt;
}

/// Only float16's gradients need a scale; those of bfloat16 have float32's range.
std::optional<train::LossScaleOptions> loss_scale_of(const settings::Settings& settings, const Precision& precision) {
  if (precision.products != at::kHalf) return std::nullopt;
  train::LossScaleOptions options = {.growth_interval = settings.get_int("train.loss_scale_growth")};
  if (const auto scale = settings.get_string("train.loss_scale"); scale != kAuto) {
    options.scale = settings::read_number(scale).value();
    options.is_dynamic = false;
  }
  return options;
}

/// The number of threads changes the order of sums inside a rank: with shards it must not follow from the machine's
/// cores and the number of ranks.
void fix_threads(settings::Settings& settings, Job& job) {
  job.training.fixes_threads = job.training.shards > 0 && job.parallel.threads == 0;
  if (!job.training.fixes_threads) return;
  job.parallel.threads = 1;
  settings.set("threads", "1");
}

std::vector<std::string_view> more_identity(const Job& job) {
  std::vector<std::string_view> keys;
  if (job.training.shards > 0) keys = {"train.shards", "threads"};
  if (job.training.ema > 0) keys.emplace_back("train.ema");
  return keys;
}

void read_training(settings::Settings& settings, Job& job) {
  job.training = {.epochs = settings.get_int("train.epochs"),
                  .steps = settings.get_int("train.steps"),
                  .batch = settings.get_int("train.batch"),
                  .accumulate = settings.get_int("train.accumulate"),
                  .shards = settings.get_int("train.shards"),
                  .clip = settings.get_float("train.clip"),
                  .ema = settings.get_float("train.ema"),
                  .skip_nonfinite = settings.get_int("train.skip_nonfinite"),
                  .precision = chosen(kPrecisions, settings.get_string("train.precision")),
                  .log_every = settings.get_int("train.log_every")};
  fix_threads(settings, job);
  job.training.loss_scale = loss_scale_of(settings, job.training.precision);
  job.seed = static_cast<uint64_t>(settings.get_int("seed"));
  job.head.options.dtype = job.training.precision.type;
  job.head.options.device = job.parallel.device;
  job.head.options.seed = job.seed;
  job.head.options.shards = job.parallel.strategy_options.shards = job.training.shards;
  job.parallel.strategy_options.fsdp.gathered = job.training.precision.products;
}

/// Ranks that get a part of a batch.
int workers_of(const Job& job) { return job.parallel.shares(job.parallel.ranks).workers(); }

/// Micro-batches change nothing but the memory of a step.
void check_accumulate(const Job& job) {
  const int64_t parts = job.training.accumulate, images = job.training.batch / workers_of(job);
  if (parts == 1 || parts <= images) return;
  throw SettingsError("train.accumulate is " + std::to_string(parts) + ", wanted at most " + std::to_string(images) +
                      ", the images of a rank in train.batch");
}

void check_shards(const Job& job) {
  const int64_t shards = job.training.shards, ranks = job.parallel.batch_ranks();
  const auto fault = "train.shards is " + std::to_string(shards);
  if (shards == 0) return;
  if (shards % ranks != 0) {
    throw SettingsError(fault + " with " + std::to_string(ranks) + " ranks, wanted a multiple of them",
                        "give each rank as many shards");
  }
  if (job.training.batch < shards) {
    throw SettingsError(fault + ", wanted at most the " + std::to_string(job.training.batch) +
                        " images of train.batch");
  }
}

void check_steps(const Job& job) {
  check_shards(job);
  if (job.training.batch < workers_of(job)) {
    throw SettingsError("train.batch is " + std::to_string(job.training.batch) + ", wanted at least " +
                        std::to_string(workers_of(job)) + ", one image a rank");
  }
  check_accumulate(job);
}

}  // namespace

const Section& training_section() {
  static const Section section = {
      .rows = {{"train.epochs", int64_t{3}, "passes over the training images", kCount},
               {"train.steps", int64_t{0}, "training steps; 0: as many as train.epochs gives", kCount},
               {"train.batch", int64_t{128}, "images per step, over all ranks", {1, 1e9}},
               {"train.accumulate",
                int64_t{1},
                "cut each rank's part of train.batch into this many micro-batches, whose gradients are added up: the "
                "same step with the activations of one micro-batch",
                {1, 1e9}},
               {"train.shards",
                int64_t{0},
                "cut the batch and the classes into this many shards, and sum over them in their order: the same bits "
                "for every number of ranks that divides it, if threads is the same; 0: sums over the ranks",
                {0, 1e6}},
               {"train.clip", 0.0, "maximum norm of all gradients together; 0: no clipping", kNotNegative},
               {"train.ema", 0.0,
                "decay of an exponential moving average of the weights, which is then the trained model: tests, "
                "tandem eval and merged files take it; 0: none",
                kDecay},
               {"train.skip_nonfinite", int64_t{0},
                "how many steps in a row may be skipped because their loss or gradients are not finite; a skipped step "
                "changes nothing",
                kCount},
               {.key = "train.precision",
                .default_value = text("float32"),
                .doc = "floating-point type; bf16: float32 weights, bfloat16 products; float16: float32 weights, "
                       "float16 products, and a scale of the loss",
                .choices = names_of(kPrecisions)},
               {.key = "train.loss_scale",
                .default_value = text(kAuto),
                .doc = "float16: factor of the loss in backward, by which the gradients are then divided; auto: 65536 "
                       "at first, half of it after each step whose gradients are not finite, which is left out",
                .choices = {kAuto},
                .other = {"a number above 0", read_scale}},
               {"train.loss_scale_growth",
                int64_t{2000},
                "train.loss_scale=auto: finite steps in a row after which the scale doubles",
                {1, 1e12}},
               {"train.log_every", int64_t{20}, "steps between two reports of the loss", {1, 1e12}},
               {"seed", int64_t{1}, "random seed", kCount}},
      .read = read_training,
      .check = check_steps,
      .idle = {{{"train.epochs"}, [](const Job& job) { return job.training.steps > 0; }, "with train.steps"},
               {{"train.loss_scale", "train.loss_scale_growth"},
                [](const Job& job) { return !job.training.loss_scale; },
                "except with train.precision=float16"},
               {{"train.loss_scale_growth"},
                [](const Job& job) { return job.training.loss_scale && !job.training.loss_scale->is_dynamic; },
                "except with train.loss_scale=auto"}},
      .identity = {"train.batch", "train.precision", "seed"},
      .more_identity = more_identity};
  return section;
}

}  // namespace tandem::job
