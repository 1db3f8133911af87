#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/job/sections/data.h"
#include "tandem/job/sections/evaluation.h"
#include "tandem/job/sections/head.h"
#include "tandem/job/sections/memory.h"
#include "tandem/job/sections/model.h"
#include "tandem/job/sections/parallel.h"
#include "tandem/job/sections/pipeline.h"
#include "tandem/job/sections/run.h"
#include "tandem/job/sections/schedule.h"
#include "tandem/job/sections/search.h"
#include "tandem/job/sections/training.h"
#include "tandem/settings/settings.h"
#include "tandem/storage/manifest.h"
#include "tandem/train/optimizer.h"

namespace tandem::job {

/// The settings of train, eval and plan.
settings::Schema schema();

/// The same with the defaults for such a model, which is the default itself.
std::vector<settings::Setting> settings_for(std::string_view model);

/// A training job: its settings, parsed once into typed values. Code below this folder never sees the name or text of a
/// setting.
struct Job {
  settings::Settings settings;  // with values that were chosen for the user; saved with a run
  Parallel parallel;
  Pipeline pipeline;
  uint64_t seed = 0;
  Data data;
  Model model;
  Head head;
  Training training;
  train::OptimizerOptions optimizer;
  std::optional<Search> search;  // nullopt: a model is trained as it is
  Schedule schedule;
  Evaluation evaluation;
  Run run;
  Memory memory;
};

/// Parses the settings. Throws SettingsError if a setting conflicts with others or with the launcher. check_training()
/// checks what only training needs.
Job read_job(settings::Settings settings);
void check_training(const Job& job);

/// Gives the settings of a run another number of ranks. A list that has one value a rank becomes empty, sizes of the
/// mesh that do not divide the ranks become the default ones, a head that is split over some axes is split over all,
/// and if no rank is left to train, none only serves.
void set_ranks(settings::Settings& settings, int ranks);

/// The same job with its head in another form.
Job with_form(const Job& job, const HeadForm& form);

/// Opens the data and writes the fonts that it chose into the job. Throws as the function that opens this kind of data.
data::Split open_data(Job& job);

/// Throws SettingsError if the best of a score is to be kept that no test of this data measures.
void check_best(const Job& job, const data::Split& data);

/// The properties of the data that decide how much memory a job needs.
struct DataShape {
  int64_t classes = 0;             // of the head
  std::array<int64_t, 3> image{};  // channels, height, width
};

/// The shape of open data. Throws SettingsError if head.classes is less than the number of classes of the data.
DataShape shape_of(const Job& job, const data::Dataset& dataset);

/// The same from the settings. Opens the data only if the settings do not determine the shape.
DataShape shape_of(const Job& job);

/// Returns `shape`. For a model that passes the images through (none), returns one row of as many numbers as the
/// embedding has: [1, 1, embedding].
std::array<int64_t, 3> shape_for_model(const Job& job, const std::array<int64_t, 3>& shape);

/// Returns true if the setting has no effect in this job, whatever its value.
bool is_idle(const Job& job, std::string_view key);

/// Warnings, one line each: settings that were given but have no effect in this job, such as "head.scale has no effect
/// with head=softmax, sphereface and l-softmax", unless they have their default value; then the sections' hints.
std::vector<std::string> idle_settings(const Job& job);

/// Identifies this job in its checkpoints. A setting without effect counts as its default. A data folder may move: only
/// the kind of its data, the names of the classes and the number of images count.
storage::Identity identity(const Job& job, const data::Dataset& dataset);

/// The part of identity() that a checkpoint must share with the job that resumes from it. Settings without effect in
/// this job are left out, so their values in the job that wrote the checkpoint do not matter.
storage::Identity shared_identity(const Job& job, storage::Identity identity);

/// The part of it that decides what the weights mean, whatever they were trained with.
storage::Identity weights_identity(const Job& job, storage::Identity identity);

}  // namespace tandem::job
