#pragma once
#include <functional>
#include <memory>
#include <string>

#include "tandem/cli/head_settings.h"
#include "tandem/cli/memory_plan.h"
#include "tandem/comm/process_group.h"
#include "tandem/data/loader.h"
#include "tandem/settings/settings.h"
#include "tandem/train/trainer.h"

namespace tandem::models {
class Backbone;
}

namespace tandem::cli {

/// Runs `body` on every rank: of this process, or as the one rank that a launcher made this process. Each rank's memory
/// goes into its own books. Throws SettingsError when `ranks` contradicts the launcher.
void on_ranks(const settings::Settings& settings, const std::function<void(comm::ProcessGroup&)>& body);

/// Throws SettingsError for settings that do not go together, before anything is opened.
void check_job(const settings::Settings& settings, int ranks);

/// How many ranks on_ranks() will run, and whether this process prints for the job.
int world_size(const settings::Settings& settings);
bool prints_for_the_job();

/// Writes the fonts, and the size of faces, that it chose into `settings`: what is saved with a run is what ran.
data::Split open_data(settings::Settings& settings);
std::unique_ptr<data::Loader> training_loader(const settings::Settings& settings, const data::Dataset& dataset,
                                              comm::ProcessGroup& group);
std::unique_ptr<data::Loader> evaluation_loader(const settings::Settings& settings, const data::Dataset& dataset,
                                                comm::ProcessGroup& group);

/// Classes of the head: head.classes, or as many as the data has. Throws SettingsError when the data has more.
int64_t num_classes(const settings::Settings& settings, const data::Dataset& dataset);

/// What the job's settings say of its data; opens the data only when they do not.
JobShape shape_of(const settings::Settings& settings);

std::shared_ptr<models::Backbone> make_backbone(const settings::Settings& settings,
                                                const std::array<int64_t, 3>& image_shape);

/// Backbone on every rank, classifier split over them. Collective.
std::unique_ptr<train::Task> make_task(const settings::Settings& settings, const data::Dataset& dataset, HeadForm form,
                                       comm::ProcessGroup& group);

/// The name under which the task's class weight stands among its parameters.
inline constexpr const char* kHeadWeight = "head.weight";

train::TrainerOptions trainer_options(const settings::Settings& settings, const data::Dataset& dataset,
                                      int64_t steps_per_epoch);

}  // namespace tandem::cli
