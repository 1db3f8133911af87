#pragma once
#include <functional>
#include <memory>

#include "tandem/comm/process_group.h"
#include "tandem/data/loader.h"
#include "tandem/job/job.h"
#include "tandem/memory/recompute_plan.h"
#include "tandem/parallel/mesh.h"
#include "tandem/train/block_trace.h"
#include "tandem/train/task.h"
#include "tandem/train/trainer.h"

namespace tandem::models {
class Backbone;
struct BlockRange;
}  // namespace tandem::models

// The parts of a job on one rank.
namespace tandem::job {

/// How a rank of the world, of `size` ranks, loads its part of each batch; `world`: the group of all ranks. Servers get
/// no part.
data::LoaderOptions training_loader_options(const Job& job, int rank, int size);
data::LoaderOptions evaluation_loader_options(const Job& job, int rank, int size);
std::unique_ptr<data::Loader> training_loader(const Job& job, const data::Dataset& dataset,
                                              const comm::ProcessGroup& world);
std::unique_ptr<data::Loader> evaluation_loader(const Job& job, const data::Dataset& dataset,
                                                const comm::ProcessGroup& world);

/// The backbone on the job's device and in its element type; with a mesh, this rank's part of it. Its memory counts as
/// parameters and buffers. Throws SettingsError if the model is none and an image has another number of values than the
/// embedding; if a layer cannot be divided over so many ranks. null: this rank is alone. `blocks`: of the model, that
/// are made, where model.freeze may name what is in others; empty: all. The mesh must outlive the result. Collective
/// with model.norm=sync, whose statistics are of the images of all ranks that share a batch.
std::shared_ptr<models::Backbone> make_backbone(const Job& job, const std::array<int64_t, 3>& image_shape,
                                                parallel::Mesh* mesh = nullptr,
                                                std::vector<models::BlockRange> blocks = {});

/// How a task is divided, over ranks and over time.
struct TaskPlan {
  TaskPlan(std::vector<int64_t> of_ranks = {}, memory::RecomputePlan of_blocks = {})
      : counts(std::move(of_ranks)), recompute(std::move(of_blocks)) {}

  /// Classes of each rank; 0 also where a rank holds a copy of another's (with_copies()). A form of the head that is
  /// whole takes no notice.
  std::vector<int64_t> counts;
  /// Of the parts of the task's chain: no segment is of two stages. Empty: nothing is recomputed.
  memory::RecomputePlan recompute;
  bool draws = true;  // false: the head's weight is undefined until it is filled
};

/// Whether a rank gets no part of a batch, and no classes.
bool only_serves(const Job& job, int rank, int ranks);

/// Whether a rank has the classifier, or a part of it: with a pipeline, one that has the last stage, or all.
bool has_head(const Job& job, int rank, int ranks);

/// The ranks among which the classes are split; others hold copies of theirs, or none.
std::vector<int> class_holders(const Job& job, int ranks);

/// The classes of each rank, where memory.limit does not say otherwise: as many for each, or as many shards; none for a
/// rank that only serves, or that holds a copy of another's (Head::over).
std::vector<int64_t> even_counts(const Job& job, int64_t classes, int ranks);

/// The classes that a rank holds, also if they are a copy of another's. `counts`: as even_counts() has them.
struct HeldClasses {
  int64_t first = 0, count = 0;
};
HeldClasses held_classes(const Job& job, const std::vector<int64_t>& counts, int rank);

/// How many each rank holds.
std::vector<int64_t> with_copies(const Job& job, const std::vector<int64_t>& counts);

/// All ranks of the job, arranged along the axes of its plan. Collective.
std::unique_ptr<parallel::Mesh> make_mesh(const Job& job, comm::ProcessGroup& world);

/// A task with a backbone, and a classifier in the form of the job. Collective as make_backbone().
std::unique_ptr<train::Task> make_task(const Job& job, const DataShape& shape, const TaskPlan& plan,
                                       parallel::Mesh& mesh);

/// What trains on one rank.
struct Assembly {
  std::unique_ptr<parallel::Mesh> mesh;
  std::unique_ptr<train::Task> task;
  std::unique_ptr<train::BlockTrace> trace;  // null: none is asked for
  std::unique_ptr<train::Step> step;
  search::SearchStep* search = nullptr;  // the step, if it is that of a search
};

/// The parts of a job on a rank of `world`, all ranks of the job. `prepare` is called with the task before the step is
/// made, which may keep copies of its weights. Collective.
Assembly assemble(const Job& job, const DataShape& shape, const TaskPlan& plan, comm::ProcessGroup& world,
                  const std::function<void(train::Task&)>& prepare = {});

/// The same with the classes split evenly, and nothing recomputed.
Assembly assemble(const Job& job, const DataShape& shape, comm::ProcessGroup& world);

/// Gives a search the loader of its validation images, the data's test images, and says when the alphas begin to move.
/// Nothing is done, and null returned, unless the assembly is that of a search.
std::unique_ptr<data::Loader> begin_search(const Job& job, const Assembly& parts, const data::Dataset& validation,
                                           int64_t steps_per_epoch, const comm::ProcessGroup& world);

/// The name of the classifier's block.
inline constexpr const char* kHeadBlock = "classifier";

/// The name of the class weight among the task's parameters.
inline constexpr const char* kHeadWeight = "head.weight";

/// The name of the class weight of an auxiliary classifier, which looks at an auxiliary head.
inline constexpr const char* kAuxiliaryWeight = "auxiliary_head.weight";

/// All options except stop_requested, which the caller sets.
train::TrainerOptions trainer_options(const Job& job, int64_t steps_per_epoch);

}  // namespace tandem::job
