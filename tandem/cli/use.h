#pragma once
#include <filesystem>
#include <vector>

#include "tandem/cli/command.h"
#include "tandem/job/trained_model.h"

// What the subcommands that use a trained model have in common.
namespace tandem::cli {

/// `tandem NAME MODEL [PATH...] [key=value...]`; resume=MODEL says the same.
struct Use {
  job::TrainedModel model;
  settings::Settings settings;               // of the subcommand
  job::Job job;                              // in which the model is used
  std::vector<std::filesystem::path> paths;  // words behind the model that are no settings
};

/// What the classes of a model are called.
class ClassNames {
 public:
  /// Without a card: by the names of `data`.
  explicit ClassNames(const job::TrainedModel& model, const data::Dataset* data = nullptr);
  explicit ClassNames(const data::Dataset& data);

  std::string operator()(int64_t label) const;
  int64_t count() const { return classes_; }  // of the model's classes
  std::vector<std::string> all() const;

 private:
  std::vector<std::string> names_;  // empty: numbers
  int64_t classes_ = 0;
};

/// A cell of a CSV file (RFC 4180): in quotes where it must be.
std::string csv_cell(const std::string& text);

/// The settings of such a subcommand: `resume`, those of use (job::settings_of_use), and its own.
std::vector<settings::Setting> use_settings(bool on_data, std::vector<settings::Setting> own);

/// Throws UsageError (64) if no model is named, SettingsError for a setting of training, and as
/// job::TrainedModel::find.
Use read_use(std::string_view name, const Arguments& arguments, settings::Schema schema);

}  // namespace tandem::cli
