#pragma once
#include <array>
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
#include "tandem/job/sections/run.h"
#include "tandem/job/sections/schedule.h"
#include "tandem/job/sections/training.h"
#include "tandem/settings/settings.h"
#include "tandem/storage/manifest.h"
#include "tandem/train/optimizer.h"

namespace tandem::job {

/// The settings of train, eval and plan.
settings::Schema schema();

/// A training job: its settings, read once into what they mean. Below this folder nobody sees a setting's name or text.
struct Job {
  settings::Settings settings;  // with what the machine has decided for the user: what is saved with a run
  Parallel parallel;
  uint64_t seed = 0;
  Data data;
  Model model;
  Head head;
  Training training;
  train::OptimizerOptions optimizer;
  Schedule schedule;
  Evaluation evaluation;
  Run run;
  Memory memory;
};

/// Throws SettingsError for a setting that means nothing beside the others, or contradicts the launcher. What a
/// training needs beyond that check_training() looks at.
Job read_job(settings::Settings settings);
void check_training(const Job& job);

/// The same job with its head in another form.
Job with_form(const Job& job, HeadForm form);

/// Opens the data. The fonts that it chose are written into the job. Throws as the data's own function does.
data::Split open_data(Job& job);

/// What of the data decides how much memory a job needs.
struct DataShape {
  int64_t classes = 0;             // of the head
  std::array<int64_t, 3> image{};  // channels, height, width
};

/// The shape of data that is open; throws SettingsError when head.classes is less than the data has.
DataShape shape_of(const Job& job, const data::Dataset& dataset);

/// The same from the settings; opens the data only where they do not say it.
DataShape shape_of(const Job& job);

/// `shape`, or for a model that passes the images on, one row of as many numbers as an embedding has.
std::array<int64_t, 3> shape_for_model(const Job& job, const std::array<int64_t, 3>& shape);

/// True when the setting changes nothing in this job, whatever its value.
bool is_idle(const Job& job, std::string_view key);

/// A line for each setting that was given and changes nothing in this job: "head.margin has no effect with
/// head=softmax". One that holds its default is not named.
std::vector<std::string> idle_settings(const Job& job);

/// What this job is, for its checkpoints: a setting without effect counts as its default. A folder may move: of its
/// path only the kind counts, beside the classes' names and the number of images.
storage::Identity identity(const Job& job, const data::Dataset& dataset);

/// What of identity() a checkpoint must share with the job that continues it. Settings without effect in this job are
/// left out: those of the job that wrote it do not matter.
storage::Identity shared_identity(const Job& job, storage::Identity identity);

}  // namespace tandem::job
