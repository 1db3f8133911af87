#pragma once
#include <memory>

#include "tandem/comm/process_group.h"
#include "tandem/data/loader.h"
#include "tandem/job/job.h"
#include "tandem/train/trainer.h"

namespace tandem::models {
class Backbone;
}

// What a job is made of, on one rank.
namespace tandem::job {

std::unique_ptr<data::Loader> training_loader(const Job& job, const data::Dataset& dataset, comm::ProcessGroup& group);
std::unique_ptr<data::Loader> evaluation_loader(const Job& job, const data::Dataset& dataset,
                                                comm::ProcessGroup& group);

/// In the job's type, its bytes in the books of parameters and buffers.
std::shared_ptr<models::Backbone> make_backbone(const Job& job, const std::array<int64_t, 3>& image_shape);

/// Backbone on every rank, classifier split over them. Collective.
std::unique_ptr<train::Task> make_task(const Job& job, const DataShape& shape, comm::ProcessGroup& group);

/// The name under which the task's class weight stands among its parameters.
inline constexpr const char* kHeadWeight = "head.weight";

/// But stop_requested, which is the caller's.
train::TrainerOptions trainer_options(const Job& job, const data::Dataset& dataset, int64_t steps_per_epoch);

}  // namespace tandem::job
