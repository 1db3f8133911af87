#include "tandem/cli/use.h"

#include "tandem/base/error.h"
#include "tandem/base/quote.h"

namespace tandem::cli {
namespace {

/// The words in their kinds.
struct Words {
  std::vector<std::string> settings, paths;
};

/// A file may have '=' in its name.
bool is_setting(const std::string& word) {
  std::error_code ignored;
  return word.find('=') != word.npos && !std::filesystem::exists(word, ignored);
}

void check_key(const std::string& word, std::string_view name, settings::Schema schema) {
  const auto key = word.substr(0, word.find('='));
  if (settings::find_setting(schema, key) != nullptr) return;
  if (settings::find_setting(job::schema(), key) == nullptr) return;  // unknown, which is told with what is near
  throw SettingsError(printable(key) + " is a setting of training, wanted one of those of tandem " + std::string(name),
                      "'tandem help " + std::string(name) + "' lists them");
}

Words split(std::span<const std::string> words) {
  Words kinds;
  for (const auto& word : words) (is_setting(word) ? kinds.settings : kinds.paths).push_back(word);
  return kinds;
}

}  // namespace

ClassNames::ClassNames(const job::TrainedModel& model, const data::Dataset* data) {
  if (model.card()) {
    names_ = model.class_names();
    classes_ = model.card()->shape.classes;
    return;
  }
  if (data != nullptr) *this = ClassNames(*data);
}

ClassNames::ClassNames(const data::Dataset& data) : classes_(data.num_classes()) {
  for (int64_t label = 0; label < classes_; ++label) names_.push_back(data.class_name(label));
}

std::string ClassNames::operator()(int64_t label) const {
  return label < static_cast<int64_t>(names_.size()) ? names_[static_cast<size_t>(label)] : std::to_string(label);
}

std::vector<std::string> ClassNames::all() const {
  std::vector<std::string> all;
  for (int64_t label = 0; label < classes_; ++label) all.push_back((*this)(label));
  return all;
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) quoted += letter == '"' ? std::string("\"\"") : std::string(1, letter);
  return quoted + '"';
}

std::vector<settings::Setting> use_settings(bool on_data, std::vector<settings::Setting> own) {
  std::vector<settings::Setting> rows = {
      {"resume", std::string("none"), "the trained model, if it is not the first word"}};
  const auto of_use = job::settings_of_use(on_data);
  rows.insert(rows.end(), of_use.begin(), of_use.end());
  rows.insert(rows.end(), own.begin(), own.end());
  return rows;
}

Use read_use(std::string_view name, const Arguments& arguments, settings::Schema schema) {
  auto words = split(arguments.words);
  settings::Settings own(schema);
  for (const auto& word : words.settings) check_key(word, name, schema);
  own.apply(words.settings);
  const auto command = std::string(name);
  if (own.get_string("resume") == "none") {
    if (words.paths.empty()) {
      throw UsageError(command + ": the trained model is missing, wanted 'tandem " + command + " RUN ...'",
                       "RUN is a run's folder, its checkpoints, one of them or a file of merged weights");
    }
    own.set("resume", words.paths.front());
    words.paths.erase(words.paths.begin());
  }
  auto model = job::TrainedModel::find(own.get_string("resume"));
  auto job = job::job_of_use(model, own);
  return {std::move(model), std::move(own), std::move(job), {words.paths.begin(), words.paths.end()}};
}

}  // namespace tandem::cli
