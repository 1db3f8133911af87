#include "tandem/job/model_card.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/job/detail/preprocessing_json.h"
#include "tandem/settings/value.h"

namespace tandem::job {
namespace {

using CardJson = nlohmann::ordered_json;

constexpr const char* kCardFormat = "tandem.model";
constexpr int64_t kCardVersion = 1;
constexpr size_t kLongNames = 1 << 20;

/// The names as JSON; "" if they are the classes' numbers.
std::string names_json(const data::Dataset& dataset) {
  std::string names = "[";
  bool are_numbers = true;
  for (int64_t label = 0; label < dataset.num_classes(); ++label) {
    const auto name = dataset.class_name(label);
    are_numbers = are_numbers && name == std::to_string(label);
    if (label > 0) names += ',';
    names += nlohmann::json(name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  return are_numbers ? "" : names + "]";
}

Tensor bytes_of(const std::string& text) {
  const auto bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

/// Of the last test, which may have been before the checkpoint's step.
CardJson metrics_json(const train::Outcome& outcome) {
  auto json = CardJson::object();
  if (outcome.scores.samples == 0) return json;
  json["step"] = outcome.scored_step;
  json["test_images"] = outcome.scores.samples;
  for (const auto& score : outcome.scores.list) {
    if (std::isfinite(score.value)) json[score.name] = score.value;
  }
  return json;
}

/// With the sides that the images have, which a source may choose itself.
data::Preprocessing preprocessing_of(const Job& job, const DataShape& shape) {
  auto all = job.data.preprocessing;
  all.form = data::with_sides(all.form, shape.image[1], shape.image[2]);
  return all;
}

/// For other programs: scores = scale * features . weights, each divided by its length if it is normalised.
CardJson head_json(const classifier::Scoring& scoring) {
  return {{"normalise_features", scoring.normalise_features},
          {"normalise_weight", scoring.normalise_weight},
          {"scale", scoring.scale}};
}

CardJson settings_json(const settings::Settings& settings) {
  auto json = CardJson::object();
  for (const auto& setting : settings.schema()) {
    if (setting.key == "out" || setting.key == "resume") continue;  // of the run, not of the model
    json[setting.key] = settings::format_value(settings.get(setting.key));
  }
  return json;
}

constexpr const char* kUseAnother = "the file is damaged, or of another program";

[[noreturn]] void refuse(const std::string& file, const std::string& what) {
  throw DataError(quote(file) + ": " + what, kUseAnother);
}

settings::Settings settings_of(const nlohmann::json& json, const std::string& file) {
  const auto saved = json.find("settings");
  if (saved == json.end() || !saved->is_object()) refuse(file, "settings is missing, wanted an object");
  settings::Settings settings(schema());
  for (const auto& [key, value] : saved->items()) {
    if (!value.is_string()) refuse(file, "settings." + key + " is " + value.dump() + ", wanted a text");
    settings.set(key, value.get_ref<const std::string&>());
  }
  return settings;
}

/// A number of 0 or more at a path such as "/classes/count".
int64_t whole_in(const nlohmann::json& json, const char* path, const std::string& file) {
  const nlohmann::json::json_pointer place(path);
  const auto value = json.contains(place) ? json.at(place) : nlohmann::json();
  if (!value.is_number_integer() || value < 0) {
    refuse(file,
           std::string(path + 1) + " is " + (value.is_null() ? "missing" : value.dump()) + ", wanted a whole number");
  }
  return value;
}

std::vector<std::string> names_of(const nlohmann::json& names, const std::string& file) {
  const auto is_text = [](const nlohmann::json& name) { return name.is_string(); };
  if (!names.is_array() || !std::ranges::all_of(names, is_text))
    refuse(file, "the classes' names are no list of texts");
  return names;
}

/// A head that has more classes than the data (head.classes) has some without names.
void check_count(const std::vector<std::string>& names, const CardFacts& facts, const std::string& file) {
  const auto count = static_cast<int64_t>(names.size()), wanted = facts.shape.classes;
  if (count == wanted || (count < wanted && facts.settings.get_int("head.classes") > 0)) return;
  refuse(file, "classes.names has " + std::to_string(count) + " names, wanted " + std::to_string(wanted) +
                   " as classes.count says");
}

}  // namespace

std::function<train::ModelCard(int64_t, const train::Outcome&)> card_writer(const Job& job,
                                                                            const data::Dataset& dataset) {
  return [&job, &dataset, names = std::optional<std::string>(), fingerprint = std::string()](
             int64_t step, const train::Outcome& so_far) mutable {
    if (!names) {
      names = names_json(dataset);
      if (job.data.source->open_test != nullptr) fingerprint = data::image_fingerprint(dataset);
    }
    const auto shape = shape_of(job, dataset);
    train::ModelCard card;
    CardJson json = {{"format", kCardFormat}, {"version", kCardVersion}, {"step", step}, {"model", job.model.name}};
    json["input"] = {{"channels", shape.image[0]}, {"height", shape.image[1]}, {"width", shape.image[2]}};
    json["preprocessing"] = detail::preprocessing_json(preprocessing_of(job, shape));
    json["head"] = head_json(job.head.options.scoring);
    json["classes"] = {{"count", shape.classes}};
    if (names->size() > kLongNames) {
      json["classes"]["names_tensor"] = train::kClassNames;
      card.class_names = bytes_of(*names);
    } else if (!names->empty()) {
      json["classes"]["names"] = CardJson::parse(*names);
    }
    if (!fingerprint.empty()) json["training_images"] = fingerprint;
    json["metrics"] = metrics_json(so_far);
    json["settings"] = settings_json(job.settings);
    card.text = json.dump(1, ' ', false, CardJson::error_handler_t::replace) + "\n";
    return card;
  };
}

CardFacts read_card(std::string_view text, const std::string& file) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", nlohmann::json()) != kCardFormat) {
    throw DataError(quote(file) + " holds no model card", kUseAnother);
  }
  if (const auto version = json.value("version", nlohmann::json()); version != kCardVersion) {
    refuse(file, "version is " + version.dump() + ", wanted " + std::to_string(kCardVersion));
  }
  auto settings = settings_of(json, file);
  CardFacts facts{.settings = std::move(settings)};
  facts.step = whole_in(json, "/step", file);
  facts.shape = {.classes = whole_in(json, "/classes/count", file),
                 .image = {whole_in(json, "/input/channels", file), whole_in(json, "/input/height", file),
                           whole_in(json, "/input/width", file)}};
  facts.preprocessing =
      detail::read_preprocessing(json.value("preprocessing", nlohmann::json()), facts.shape.image, file);
  const auto& classes = json["classes"];
  if (const auto names = classes.find("names"); names != classes.end()) {
    facts.names = names_of(*names, file);
    check_count(*facts.names, facts, file);
  }
  facts.has_names_tensor = classes.contains("names_tensor");
  if (const auto images = json.find("training_images"); images != json.end() && images->is_string()) {
    facts.training_images = *images;
  }
  return facts;
}

std::vector<std::string> read_class_names(std::string_view text, const CardFacts& facts, const std::string& file) {
  auto names = names_of(nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false), file);
  check_count(names, facts, file);
  return names;
}

}  // namespace tandem::job
