#pragma once
#include <functional>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/memory/rehearsal.h"
#include "tandem/parallel/gradient_sync.h"
#include "tandem/train/detail/step_numbers.h"
#include "tandem/train/step.h"
#include "tandem/train/task.h"

namespace tandem::train {

/// Forward and backward of a step: of all its micro-batches, and of all blocks that the ranks of the job hold. The
/// plain ones (plain_passes.h) run them one after the other; a schedule of a pipeline is another implementation.
class Passes {
 public:
  virtual ~Passes() = default;

  /// Leaves the gradients of the whole batch times `scale` in the .grad of what this rank trains, and adds terms of the
  /// batch's loss to `numbers`, which nobody has read yet. Returns the factor of each term. Their sum, and that over
  /// the ranks along Task::summed_along(), is the loss. If it is not finite, backward may be left out, on all ranks
  /// alike. Collective.
  virtual std::vector<double> run(const data::Batch& batch, double scale, detail::StepNumbers& numbers) = 0;

  /// What an update allocates for a moment after run(). `rows`: of each trained parameter, the rows of its sparse
  /// gradient; 0: it has none.
  using Update = std::function<std::vector<memory::Change>(const std::vector<int64_t>& rows)>;

  /// The most that run() and then an update hold on this rank, `held` besides (Step::rehearse()). Collective.
  virtual memory::Composition rehearse(const data::Batch& batch, memory::Account held, const Update& update) = 0;

  /// Step::timeline().
  virtual std::vector<pipeline::Timed> timeline() const { return {}; }

  /// Step::Costs::stages. Leaves gradients.
  virtual std::vector<pipeline::StageCost> measure(const data::Batch& batch) { return {}; }

  /// Step::rehearse_blocks().
  virtual std::vector<Step::Blocks> rehearse_blocks(const data::Batch& batch, bool in_parts) { return {}; }
};

/// What a strategy needs for a moment in a step. Collective.
parallel::SyncMemory memory_of(parallel::GradientSync& sync);

/// While it lives, the blocks of the model run alone (parallel::SyncRehearsal).
class RunAloneScope {
 public:
  explicit RunAloneScope(parallel::GradientSync& sync);
  ~RunAloneScope();
  RunAloneScope(const RunAloneScope&) = delete;
  RunAloneScope& operator=(const RunAloneScope&) = delete;

 private:
  parallel::SyncRehearsal* rehearsal_;
};

/// Of what is trained, whose gradients backward allocates: the parameters that the strategy leaves as they are, and the
/// parts that it holds in place of others.
struct AllocatedGradients {
  std::vector<Tensor> whole, parts;
};
AllocatedGradients allocated_gradients(const std::vector<Parameter>& trained, const Task& task,
                                       const parallel::SyncMemory& sync);

void reset_gradients(const std::vector<Tensor>& tensors);

}  // namespace tandem::train
