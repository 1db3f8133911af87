#include "tandem/cli/job.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/cli/idle_settings.h"
#include "tandem/cli/job_schema.h"
#include "tandem/cli/same_settings.h"
#include "tandem/cli/stop_signals.h"
#include "tandem/comm/world.h"
#include "tandem/data/face_records.h"
#include "tandem/data/glyphs.h"
#include "tandem/data/image_files.h"
#include "tandem/data/image_folder.h"
#include "tandem/data/market1501.h"
#include "tandem/data/synthetic.h"
#include "tandem/memory/meter.h"
#include "tandem/settings/value.h"
#include "tandem/storage/checksum.h"

namespace tandem::cli {
namespace {

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(std::max<int64_t>(1, std::llround(seconds * 1000)));
}

comm::WorldOptions world_options(const settings::Settings& settings) {
  return {.init_timeout = milliseconds(settings.get_float("comm.init_timeout")),
          .timeout = milliseconds(settings.get_float("comm.timeout")),
          .threads = static_cast<int>(settings.get_int("threads")),
          .check = settings.get_bool("comm.check"),
          .stop_requested = stop_signals::requested};
}

data::LoaderOptions loader_options(const settings::Settings& settings, comm::ProcessGroup& group) {
  data::LoaderOptions options;
  options.rank = group.rank();
  options.size = group.size();
  options.seed = static_cast<uint64_t>(settings.get_int("seed"));
  options.prefetch = static_cast<int>(settings.get_int("data.prefetch"));
  return options;
}

train::OptimizerOptions optimizer_options(const settings::Settings& settings) {
  train::OptimizerOptions options;
  options.kind =
      settings.get_string("train.optimizer") == "adamw" ? train::OptimizerKind::adamw : train::OptimizerKind::sgd;
  options.momentum = settings.get_float("train.momentum");
  options.nesterov = settings.get_bool("train.nesterov");
  options.weight_decay = settings.get_float("train.weight_decay");
  options.beta1 = settings.get_float("train.beta1");
  options.beta2 = settings.get_float("train.beta2");
  return options;
}

train::ScheduleOptions schedule_options(const settings::Settings& settings, int64_t steps, int64_t steps_per_epoch) {
  const auto& name = settings.get_string("train.schedule");
  train::ScheduleOptions options;
  options.kind = name == "onecycle" ? train::ScheduleKind::onecycle
                 : name == "cosine" ? train::ScheduleKind::cosine
                 : name == "step"   ? train::ScheduleKind::step
                                    : train::ScheduleKind::constant;
  options.lr = settings.get_float("train.lr");
  options.steps = steps;
  // A rate that rises belongs to onecycle; elsewhere only who asks gets one.
  const bool rises = options.kind == train::ScheduleKind::onecycle || settings.given("train.warmup");
  options.warmup = rises ? settings.get_float("train.warmup") : 0.0;
  options.gamma = settings.get_float("train.gamma");
  for (const double epoch : settings.get_numbers("train.milestones")) {
    options.milestones.push_back(std::llround(epoch * static_cast<double>(steps_per_epoch)));
  }
  return options;
}

constexpr std::array kIdentity = {
    "data",        "data.classes",   "data.train_fonts", "data.size",       "model",           "embedding",
    "head",        "head.margin",    "head.margins",     "head.factor",     "head.anneal",     "head.scale",
    "head.beyond", "head.gradient",  "head.filter",      "head.smoothing",  "head.sample",     "head.log_q",
    "head.lazy",   "head.precision", "train.batch",      "train.optimizer", "train.precision", "seed"};

std::string class_names_checksum(const data::Dataset& dataset) {
  storage::Checksum checksum;
  for (int64_t label = 0; label < dataset.num_classes(); ++label) {
    const auto name = dataset.class_name(label) + '\0';
    checksum.update(std::as_bytes(std::span(name)));
  }
  return checksum.hex();
}

/// What this job is, for its checkpoints: a setting without effect counts as its default. A folder may move: of its
/// path only the kind counts, beside the classes' names and the number of images.
storage::Identity identity(const settings::Settings& settings, const data::Dataset& dataset) {
  const settings::Settings defaults(settings.schema());
  storage::Identity job;
  for (const auto* key : kIdentity)
    job.emplace_back(key, settings::format_value((is_idle(settings, key) ? defaults : settings).get(key)));
  auto& data = job.front();
  TORCH_INTERNAL_ASSERT(data.first == "data");
  if (const auto colon = data.second.find(':'); colon != std::string::npos) {
    data.second.erase(colon);
    job.emplace_back("class_names", class_names_checksum(dataset));
  }
  job.emplace_back("classes", std::to_string(num_classes(settings, dataset)));
  job.emplace_back("images", std::to_string(dataset.size()));
  return job;
}

/// What a checkpoint must share with the job that continues it. Settings without effect here are left out: those of the
/// job that wrote it do not matter.
storage::Identity shared_part(const settings::Settings& settings, storage::Identity job) {
  std::erase_if(job, [&](const auto& entry) {
    return std::ranges::find(kIdentity, entry.first) != kIdentity.end() && is_idle(settings, entry.first);
  });
  return job;
}

data::Split open_synthetic(const settings::Settings& settings) {
  data::SyntheticOptions options;
  if (settings.get_int("head.classes") > 0) options.classes = settings.get_int("head.classes");
  const int64_t size = settings.get_int("data.size");
  if (settings.get_string("model") == "none") {
    options.shape = {1, 1, settings.get_int("embedding")};
  } else {
    options.shape = {3, size, size};
  }
  return data::synthetic(options);
}

std::string folder_of(const settings::Settings& settings) {
  const auto& name = settings.get_string("data");
  return name.substr(name.find(':') + 1);
}

/// Faces keep the size that their folder's property says, unless data.size is given.
void take_face_size(settings::Settings& settings) {
  if (!settings.get_string("data").starts_with(kFacesPrefix) || settings.given("data.size")) return;
  const auto property = data::face_property(folder_of(settings));
  const bool fits = property && property->height == property->width && data::is_image_side(property->height);
  if (fits) settings.set("data.size", std::to_string(property->height));
}

data::Split open_glyphs(settings::Settings& settings) {
  data::GlyphOptions options;
  options.classes = settings.get_string("data.classes");
  options.size = settings.get_int("data.size");
  options.train_fonts = settings.get_list("data.train_fonts");
  options.test_fonts = settings.get_list("data.test_fonts");
  options = data::with_fonts(options);
  for (const auto& [key, fonts] :
       {std::pair("data.train_fonts", options.train_fonts), std::pair("data.test_fonts", options.test_fonts)}) {
    if (settings.get_list(key).empty()) settings.set(key, settings::format_value(fonts));
  }
  auto split = data::glyphs(options);
  const int64_t unseen = settings.get_int("data.unseen");
  if (unseen > 0) split.retrieval = data::unseen_glyphs(options, split.train->num_classes(), unseen);
  return split;
}

}  // namespace

int world_size(const settings::Settings& settings) {
  const auto ranks = settings.get_int("ranks");
  const auto launch = comm::detect_launch();
  if (!launch || launch->size == 1) return static_cast<int>(ranks);
  if (settings.given("ranks") && ranks != launch->size) {
    throw SettingsError("ranks is " + std::to_string(ranks) + ", wanted " + std::to_string(launch->size) + " as " +
                            launch->launcher + " has started",
                        "leave ranks out");
  }
  return launch->size;
}

bool prints_for_the_job() {
  const auto launch = comm::detect_launch();
  return !launch || launch->rank == 0;
}

void check_job(const settings::Settings& settings, int ranks) {
  read_scoring(settings);
  const bool is_sampled = read_sampling(settings).has_value(), is_naive = head_form(settings) == HeadForm::naive;
  train::Optimizer optimizer({}, optimizer_options(settings));  // checks its own
  if (is_sampled && !is_naive && settings.get_string("head.lazy") == "exact") optimizer.check_late_moves();
  if (!is_naive && settings.get_bool("head.fused_update") && settings.get_float("train.clip") > 0) {
    throw SettingsError("train.clip is " + settings::format_value(settings.get("train.clip")) +
                            " with head.fused_update, whose steps are done before the norm of all gradients is known",
                        "leave one of them out");
  }
  if (!is_naive && settings.get_bool("head.fused_update") && settings.get_int("train.skip_nonfinite") > 0) {
    throw SettingsError("train.skip_nonfinite is " + settings::format_value(settings.get("train.skip_nonfinite")) +
                            " with head.fused_update, which has moved some classes before the fault is seen",
                        "leave one of them out");
  }
  if (settings.get_int("train.batch") < ranks) {
    throw SettingsError("train.batch is " + std::to_string(settings.get_int("train.batch")) + ", wanted at least " +
                        std::to_string(ranks) + ", one image a rank");
  }
  if (is_naive && !settings.get_list("memory.limit").empty()) {
    throw SettingsError("memory.limit is given with head.parallel naive, which splits all classes alike",
                        "leave one of them out");
  }
  const bool is_tall = settings.get_string("data").starts_with(kMarketPrefix);
  if (is_tall && settings.get_int("data.size") < 16) {
    throw SettingsError("data.size is " + std::to_string(settings.get_int("data.size")) +
                        " with market1501, wanted 16 or more: the width is half of it");
  }
}

void on_ranks(const settings::Settings& settings, const std::function<void(comm::ProcessGroup&)>& body) {
  const int size = world_size(settings);
  const auto run = [&](comm::ProcessGroup& group) {
    const memory::RankScope scope(group.rank());
    body(group);
  };
  const auto launch = comm::detect_launch();
  if (!launch || launch->size == 1) return comm::run_ranks(size, run, world_options(settings));
  try {
    const auto group = comm::join_world(launch, world_options(settings));
    comm::run_recorded(*group, [&](comm::ProcessGroup& all) {
      check_same_settings(settings, all);
      run(all);
    });
  } catch (...) {
    rethrow_with_rank(launch->rank, launch->size);
  }
}

int64_t num_classes(const settings::Settings& settings, const data::Dataset& dataset) {
  const int64_t wanted = settings.get_int("head.classes");
  if (wanted == 0) return dataset.num_classes();
  if (wanted >= dataset.num_classes()) return wanted;
  throw SettingsError("head.classes is " + std::to_string(wanted) + ", wanted at least " +
                          std::to_string(dataset.num_classes()) + " as the data has",
                      "leave head.classes out");
}

JobShape shape_of(const settings::Settings& settings) {
  auto own = settings;
  take_face_size(own);
  const int64_t size = own.get_int("data.size"), classes = settings.get_int("head.classes");
  if (settings.get_string("model") == "none" && classes > 0) return {classes, {1, 1, settings.get_int("embedding")}};
  if (settings.get_string("data") == "glyphs" && classes > 0) return {classes, {1, size, size}};
  const bool is_tall = settings.get_string("data").starts_with(kMarketPrefix);
  if (classes > 0) return {classes, {3, size, is_tall ? size / 2 : size}};
  const auto data = open_data(own);
  return {num_classes(settings, *data.train), data.train->image_shape()};
}

data::Split open_data(settings::Settings& settings) {
  take_face_size(settings);
  const auto& name = settings.get_string("data");
  if (name == "synthetic") return open_synthetic(settings);
  const int64_t size = settings.get_int("data.size"), hold_out = settings.get_int("data.hold_out");
  const auto folder = folder_of(settings);
  if (name.starts_with(kImagesPrefix)) return data::image_folder({folder, size, hold_out});
  if (name.starts_with(kFacesPrefix)) return data::face_records({folder, size, hold_out});
  if (name.starts_with(kMarketPrefix)) return data::market1501({folder, size, size / 2});
  return open_glyphs(settings);
}

std::unique_ptr<data::Loader> training_loader(const settings::Settings& settings, const data::Dataset& dataset,
                                              comm::ProcessGroup& group) {
  auto options = loader_options(settings, group);
  options.batch = settings.get_int("train.batch");
  options.augment.affine = settings.get_float("data.affine");
  options.augment.shift = settings.get_float("data.shift");
  options.augment.blur = settings.get_float("data.blur");
  options.augment.noise = settings.get_float("data.noise");
  return std::make_unique<data::Loader>(dataset, options);
}

std::unique_ptr<data::Loader> evaluation_loader(const settings::Settings& settings, const data::Dataset& dataset,
                                                comm::ProcessGroup& group) {
  auto options = loader_options(settings, group);
  options.batch = std::max<int64_t>(settings.get_int("eval.batch"), group.size());
  options.augment = data::no_augmentation();
  options.shuffle = false;
  options.drop_last = false;
  return std::make_unique<data::Loader>(dataset, options);
}

train::TrainerOptions trainer_options(const settings::Settings& settings, const data::Dataset& dataset,
                                      int64_t steps_per_epoch) {
  train::TrainerOptions options;
  options.steps = settings.get_int("train.steps");
  if (options.steps == 0) options.steps = settings.get_int("train.epochs") * steps_per_epoch;
  options.optimizer = optimizer_options(settings);
  options.schedule = schedule_options(settings, options.steps, steps_per_epoch);
  options.clip = settings.get_float("train.clip");
  options.skip_nonfinite = settings.get_int("train.skip_nonfinite");
  options.log_every = settings.get_int("train.log_every");
  options.evaluate_every = settings.get_int("eval.every") * steps_per_epoch;
  options.checkpoint_every = settings.get_int("checkpoint.every");
  if (options.checkpoint_every == 0) options.checkpoint_every = steps_per_epoch;
  options.job = identity(settings, dataset);
  options.shared = shared_part(settings, options.job);
  options.stop_requested = stop_signals::requested;
  return options;
}

}  // namespace tandem::cli
