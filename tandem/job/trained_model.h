#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/job/model_card.h"
#include "tandem/parallel/mesh.h"
#include "tandem/train/checkpoint_store.h"
#include "tandem/train/task.h"

namespace tandem::job {

/// The settings that the run was trained with to which a path leads: those in its folder, or else those in the card of
/// its newest whole checkpoint; without `out` and `resume`, and with the ranks of a launcher that has started this
/// process. nullopt: none are saved. Throws as locate_checkpoints() and read_card().
std::optional<settings::Settings> saved_settings(const std::filesystem::path& path);

/// A model that was trained, as its files describe it.
class TrainedModel {
 public:
  /// What a path leads to: a run's folder, its checkpoints, one of them, or a file of merged weights. Reads the model
  /// card and no tensor. Throws DataError if there is no model: with a checkpoint that has no card, if the run's
  /// settings are not beside it either; with a file, if it has no card; or if a checkpoint that the path names has a
  /// fault in its manifest or the sizes of its files. Throws as read_card().
  static TrainedModel find(const std::filesystem::path& path);

  /// As saved_settings().
  const settings::Settings& settings() const { return settings_; }

  /// nullopt: the checkpoint is of a version without cards.
  const std::optional<CardFacts>& card() const { return card_; }

  /// The same. Throws DataError if there is none.
  const CardFacts& known() const;

  /// The names of the classes, read from the file of a tensor if they are there. Empty: they are numbers. Throws as
  /// known(), and DataError.
  std::vector<std::string> class_names() const;

  struct Filled {
    int64_t step = 0;  // of training
    std::string file;  // the checkpoint or file that the weights are from
  };

  /// Fills the task's weights: each rank reads the parts that it holds, whatever ranks and placements have written
  /// them. Of a run's checkpoints the newest one of this `identity` that every rank can read; the others are told and
  /// passed over. No other takes the place of a checkpoint that the path names. `identity`: of the data, where it
  /// decides what classes mean; else empty. Throws DataError if there is none, or if a file does not hold the model's
  /// weights. Collective.
  Filled fill(const train::Task& task, const storage::Identity& identity, comm::ProcessGroup& group) const;

 private:
  TrainedModel(std::filesystem::path path, settings::Settings settings)
      : path_(std::move(path)), settings_(std::move(settings)) {}
  static TrainedModel of_file(const std::filesystem::path& file);
  static TrainedModel of_checkpoints(const std::filesystem::path& path);

  std::filesystem::path path_;
  std::optional<train::CheckpointPlace> place_;  // nullopt: the path is a file of weights
  settings::Settings settings_;
  std::optional<CardFacts> card_;
  int64_t card_step_ = 0;  // of the checkpoint whose card it is
};

/// The settings that count when a trained model is used; `on_data`: on data that `data` names, or else on those that it
/// was trained with.
std::vector<settings::Setting> settings_of_use(bool on_data);

/// The job in which a model is used, with those of the settings `given` that are given, and the model's preprocessing.
/// Throws as read_job().
Job job_of_use(const TrainedModel& model, const settings::Settings& given);

/// A trained model on one rank. Goes in reverse order.
struct TrainedTask {
  std::unique_ptr<parallel::Mesh> mesh;
  std::unique_ptr<train::Task> task;
  TrainedModel::Filled from;
};

/// The task of the job with the weights of the model, which counts as not training from now on. Rank 0 tells from which
/// file they are. `job`: of job_of_use();
/// `identity`: as TrainedModel::fill() has it. Throws as that does. Collective.
TrainedTask open_trained(const TrainedModel& model, const Job& job, const DataShape& shape,
                         const storage::Identity& identity, comm::ProcessGroup& world);

/// Throws DataError if the job's data are in a folder that does not exist. For data that saved settings name, so that
/// the error says how to name others.
void check_saved_folder(const Job& job);

/// What to test the model on: the data of the job, with the labels of the model's classes; Split::train is null if the
/// job's source can open test images alone. Without a card, the data that the model was trained with, and all of them.
/// `takes_others`: images of other classes are taken too, with their own labels (Split::has_other_classes). Writes the
/// fonts that it chose into the job. Throws as check_saved_folder() and open_data(), and DataError for data of other
/// classes.
data::Split open_test_data(const TrainedModel& model, Job& job, bool takes_others);

/// Throws DataError unless the classes of `data` are those of the model, with the same labels.
void check_classes(const data::Dataset& data, const std::vector<std::string>& names);

}  // namespace tandem::job
