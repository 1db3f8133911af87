#include "tandem/job/model_card.h"

#include <ATen/ATen.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
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

CardJson settings_json(const settings::Settings& settings) {
  auto json = CardJson::object();
  for (const auto& setting : settings.schema()) {
    if (setting.key == "out" || setting.key == "resume") continue;  // of the run, not of the model
    json[setting.key] = settings::format_value(settings.get(setting.key));
  }
  return json;
}

}  // namespace

std::function<train::ModelCard(int64_t, const train::Outcome&)> card_writer(const Job& job,
                                                                            const data::Dataset& dataset) {
  return [&job, &dataset, names = std::optional<std::string>()](int64_t step, const train::Outcome& so_far) mutable {
    if (!names) names = names_json(dataset);
    const auto shape = shape_of(job, dataset);
    train::ModelCard card;
    CardJson json = {{"format", kCardFormat}, {"version", kCardVersion}, {"step", step}, {"model", job.model.name}};
    json["input"] = {{"channels", shape.image[0]}, {"height", shape.image[1]}, {"width", shape.image[2]}};
    json["classes"] = {{"count", shape.classes}};
    if (names->size() > kLongNames) {
      json["classes"]["names_tensor"] = train::kClassNames;
      card.class_names = bytes_of(*names);
    } else if (!names->empty()) {
      json["classes"]["names"] = CardJson::parse(*names);
    }
    json["metrics"] = metrics_json(so_far);
    json["settings"] = settings_json(job.settings);
    card.text = json.dump(1, ' ', false, CardJson::error_handler_t::replace) + "\n";
    return card;
  };
}

settings::Settings settings_of_card(std::string_view text, const std::string& file) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto refuse = [&](const std::string& what) {
    throw DataError(quote(file) + ": " + what, "the file is damaged, or of another program");
  };
  if (!json.is_object() || json.value("format", nlohmann::json()) != kCardFormat) refuse("is no model card");
  if (const auto version = json.value("version", nlohmann::json()); version != kCardVersion) {
    refuse("version is " + version.dump() + ", wanted " + std::to_string(kCardVersion));
  }
  const auto saved = json.find("settings");
  if (saved == json.end() || !saved->is_object()) refuse("settings is missing, wanted an object");
  settings::Settings settings(schema());
  for (const auto& [key, value] : saved->items()) {
    if (!value.is_string()) refuse("settings." + key + " is " + value.dump() + ", wanted a text");
    settings.set(key, value.get_ref<const std::string&>());
  }
  return settings;
}

}  // namespace tandem::job
