#include "tandem/job/trained_model.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/quote.h"
#include "tandem/comm/joint_work.h"
#include "tandem/job/parts.h"
#include "tandem/job/sections/naming.h"
#include "tandem/job/sections/section.h"
#include "tandem/rendezvous/environment.h"
#include "tandem/settings/value.h"
#include "tandem/storage/file_io.h"
#include "tandem/storage/named_file.h"
#include "tandem/train/checkpoint.h"
#include "tandem/train/starting_weights.h"
#include "tandem/train/weights_file.h"

namespace tandem::job {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLargestSettings = 1 << 20;

/// As another program would use the model, not as the run that made it.
settings::Settings for_use(settings::Settings settings) {
  settings.set("resume", "none");
  settings.set("out", "");
  const auto launch = rendezvous::detect_launch();
  if (launch && launch->size > 1) set_ranks(settings, launch->size);
  return settings;
}

/// Those of the run whose checkpoints these are.
std::optional<settings::Settings> settings_beside(const train::CheckpointPlace& place) {
  const auto file = place.folder.parent_path() / "settings.toml";
  if (!storage::is_there(file)) return std::nullopt;
  settings::Settings settings(schema());
  settings.load_toml(storage::read_named_file("settings file", file, kLargestSettings), file.string());
  return settings;
}

/// Reads no tensor.
std::optional<std::string> trusts(const train::CheckpointStore::Found&) { return std::nullopt; }

/// The newest whole checkpoint, judged by its manifest and the sizes of its files.
std::optional<train::CheckpointStore::Found> newest_of(const train::CheckpointPlace& place) {
  std::vector<std::string> ignored;
  return train::CheckpointStore(place.folder).find_newest({}, ignored, place.newest, trusts);
}

/// A checkpoint that the user has named, judged as by newest_of(). Throws DataError if it has a fault.
void check_named(const train::CheckpointPlace& place) {
  const train::CheckpointStore store(place.folder);
  if (const auto fault = store.verify(*place.newest, {}, trusts)) {
    throw train::fault_of_named(store.path(*place.newest), *fault);
  }
}

std::optional<CardFacts> card_of(const train::CheckpointPlace& place, const storage::Manifest& manifest) {
  const train::CheckpointStore store(place.folder);
  const auto card = store.card(manifest);
  if (card.empty()) return std::nullopt;
  return read_card(card, (store.path(manifest.step) / storage::kCardName).string());
}

/// The file says itself of what model it is, so weights of another one are a damage of the file.
void load_merged(const fs::path& file, const std::vector<train::Parameter>& weights) {
  try {
    train::load_weights(file, weights);
  } catch (const SettingsError& error) {
    throw DataError(error.fault(), "the file is damaged, use another copy");
  }
}

std::string text_of(const Tensor& bytes) {
  const auto own = bytes.contiguous();
  return {static_cast<const char*>(own.const_data_ptr()), static_cast<size_t>(own.nbytes())};
}

}  // namespace

std::optional<settings::Settings> saved_settings(const fs::path& path) {
  const auto place = train::locate_checkpoints(path);
  auto settings = settings_beside(place);
  if (settings) return for_use(*std::move(settings));
  const auto found = newest_of(place);
  const auto card = found ? card_of(place, found->manifest) : std::nullopt;
  if (!card) return std::nullopt;
  return for_use(card->settings);
}

TrainedModel TrainedModel::find(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) || train::names_best(path) ? of_checkpoints(path) : of_file(path);
}

TrainedModel TrainedModel::of_file(const fs::path& file) {
  if (!storage::is_there(file)) {
    throw DataError(quote(file.string()) + " does not exist, wanted a run's folder, a checkpoint, or merged weights");
  }
  const storage::SafetensorsFile weights(file);
  const auto card = weights.metadata().find(train::kCardKey);
  if (card == weights.metadata().end()) {
    throw DataError(quote(file.string()) +
                    " does not say what model it is of, wanted weights that 'tandem reshard "
                    "merge=FILE' has written");
  }
  auto facts = read_card(card->second, file.string());
  TrainedModel model(file, for_use(facts.settings));
  model.card_ = std::move(facts);
  return model;
}

TrainedModel TrainedModel::of_checkpoints(const fs::path& path) {
  const auto place = train::locate_checkpoints(path);
  const auto what = quote(path.string());
  if (train::CheckpointStore(place.folder).list().empty()) {
    throw DataError(what + " holds no checkpoint, wanted a run's folder, its checkpoints or one of them");
  }
  if (place.newest) check_named(place);
  const auto found = newest_of(place);
  if (!found) throw DataError(what + " holds no whole checkpoint");
  auto card = card_of(place, found->manifest);
  auto settings = settings_beside(place);
  if (!settings && !card) {
    throw DataError(what + " has neither a model card nor the settings of its run, wanted one of them",
                    "put the run's settings.toml beside the folder of its checkpoints");
  }
  TrainedModel model(path, for_use(settings ? *std::move(settings) : card->settings));
  model.place_ = place;
  model.card_ = std::move(card);
  model.card_step_ = found->step;
  return model;
}

const CardFacts& TrainedModel::known() const {
  if (card_) return *card_;
  throw DataError(quote(path_.string()) + " is of a version that saved neither the names of the classes nor the " +
                      "preprocessing of pictures, wanted a checkpoint with a model card",
                  "'tandem train resume=" + path_.string() + " out=FOLDER' saves one, even if no step is left");
}

std::vector<std::string> TrainedModel::class_names() const {
  const auto& facts = known();
  if (facts.names) return *facts.names;
  if (!facts.has_names_tensor) return {};
  if (!place_) {
    const storage::SafetensorsFile weights(path_);
    return read_class_names(text_of(weights.read(train::kClassNames)), facts, path_.string());
  }
  const train::CheckpointReader checkpoint(train::CheckpointStore(place_->folder), card_step_);
  return read_class_names(text_of(checkpoint.read(train::kClassNames)), facts, path_.string());
}

TrainedModel::Filled TrainedModel::fill(const train::Task& task, const storage::Identity& identity,
                                        comm::ProcessGroup& group) const {
  const auto weights = task.weights();
  if (!place_) {
    comm::jointly(group, [&] { load_merged(path_, weights); });
    return {known().step, path_.string()};
  }
  const train::CheckpointStore store(place_->folder);
  const auto read = [&](const train::CheckpointReader& checkpoint) {
    for (const auto& [name, tensor, placement] : weights) checkpoint.read_into(name, placement, tensor);
  };
  if (place_->newest) {
    const auto named = train::read_checkpoint(store, identity, *place_->newest, read, group);
    return {named.step, store.path(named.step).string()};
  }
  const auto found = train::find_checkpoint(store, identity, {}, read, group);
  if (!found) {
    throw DataError(quote(place_->folder.string()) + " holds no whole checkpoint of this job",
                    "see the warnings above");
  }
  return {found->step, store.path(found->step).string()};
}

std::vector<settings::Setting> settings_of_use(bool on_data) {
  std::vector<settings::Setting> rows;
  for (const auto* section : sections()) {
    const auto is_in = [](const std::vector<std::string_view>& keys, std::string_view key) {
      return std::ranges::find(keys, key) != keys.end();
    };
    for (const auto& row : section->rows) {
      if (is_in(section->in_use, row.key) || (on_data && is_in(section->in_use_on_data, row.key))) rows.push_back(row);
    }
  }
  return rows;
}

Job job_of_use(const TrainedModel& model, const settings::Settings& given) {
  auto settings = model.settings();
  settings.set("ps.servers", "0");  // there is nothing to serve
  const auto known = schema();
  for (const auto& row : given.schema()) {
    if (!given.given(row.key) || settings::find_setting(known, row.key) == nullptr) continue;
    if (row.key == "ranks") set_ranks(settings, static_cast<int>(given.get_int("ranks")));
    settings.set(row.key, settings::format_value(given.get(row.key)));
  }
  auto job = read_job(std::move(settings));
  if (!model.card()) return job;
  job.data.preprocessing = model.card()->preprocessing;
  job.data.augment.normalization = job.data.preprocessing.normalization;
  return job;
}

TrainedTask open_trained(const TrainedModel& model, const Job& job, const DataShape& shape,
                         const storage::Identity& identity, comm::ProcessGroup& world) {
  TrainedTask opened{.mesh = make_mesh(job, world)};
  TaskPlan plan(even_counts(job, shape.classes, world.size()));
  plan.draws = false;
  opened.task = make_task(job, shape, plan, *opened.mesh);
  opened.from = model.fill(*opened.task, identity, world);
  if (world.rank() == 0) log::info("model    " + opened.from.file);
  opened.task->set_training(false);
  return opened;
}

void check_saved_folder(const Job& job) {
  std::error_code ignored;
  if (!job.data.has_folder() || fs::exists(job.data.folder, ignored)) return;
  throw DataError("the folder " + quote(job.data.folder.string()) + ", on which the model was trained, does not exist",
                  "data=" + std::string(job.data.source->name) + ":FOLDER names its new place or other images");
}

data::Split open_test_data(const TrainedModel& model, Job& job, bool takes_others) {
  if (job.settings.get("data") == model.settings().get("data")) check_saved_folder(job);
  if (!model.card()) return open_data(job);
  auto names = model.class_names();
  if (job.data.source->open_test == nullptr) {
    auto split = open_data(job);
    check_classes(*split.train, names);
    return split;
  }
  for (int64_t label = static_cast<int64_t>(names.size()); label < model.card()->shape.classes; ++label) {
    names.push_back(std::to_string(label));
  }
  return naming_settings({"data"}, [&] {
    const auto trained_on = model.settings().get_string("data");
    const auto folder = trained_on.substr(trained_on.find(':') + 1);
    return job.data.source->open_test(job, {std::move(names), model.card()->training_images, folder, takes_others});
  });
}

void check_classes(const data::Dataset& data, const std::vector<std::string>& names) {
  for (int64_t label = 0; label < data.num_classes(); ++label) {
    const auto name = data.class_name(label);
    const bool is_beyond = !names.empty() && label >= static_cast<int64_t>(names.size());
    const auto wanted = is_beyond ? "" : names.empty() ? std::to_string(label) : names[static_cast<size_t>(label)];
    if (name == wanted) continue;
    throw DataError("class " + std::to_string(label) + " of the data is " + quote(name) + ", wanted " +
                        (is_beyond ? "none: the model has " + std::to_string(names.size()) + " classes"
                                   : quote(wanted) + " as the model has"),
                    "the data are not those that the model was trained for");
  }
}

}  // namespace tandem::job
