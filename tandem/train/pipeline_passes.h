#pragma once
#include <functional>
#include <map>
#include <memory>

#include "tandem/parallel/mesh.h"
#include "tandem/parallel/strategy.h"
#include "tandem/pipeline/executor.h"
#include "tandem/train/micro_batches.h"
#include "tandem/train/passes/passes.h"
#include "tandem/train/task.h"

namespace tandem::train {

struct PipelinePassesOptions {
  int64_t accumulate = 1;   // micro-batches of a step
  parallel::Shares shares;  // of a batch
  /// The program for so many micro-batches: empty ones are left out.
  std::function<pipeline::Program(int micro_batches)> program;
};

/// All micro-batches of a step over the stages of a pipeline, as a program has it; each rank holds some stages
/// (Task::stages()). The strategy sums the gradients of a stage, of which the data axis has copies, from its last
/// backward on, while other stages of the rank still run. The loss is known where the last stage is: the terms of other
/// ranks are 0.
class PipelinePasses : public Passes {
 public:
  /// All must outlive this object.
  PipelinePasses(Task& task, parallel::GradientSync& sync, const std::vector<Parameter>& trained, parallel::Mesh& mesh,
                 PipelinePassesOptions options);
  ~PipelinePasses() override;

  std::vector<double> run(const data::Batch& batch, double scale, detail::StepNumbers& numbers) override;
  memory::Composition rehearse(const data::Batch& batch, memory::Account held, const Update& update) override;
  std::vector<pipeline::StageCost> measure(const data::Batch& batch) override;
  std::vector<pipeline::Timed> timeline() const override { return timeline_; }
  std::vector<Step::Blocks> rehearse_blocks(const data::Batch& batch, bool in_parts) override;

 private:
  std::vector<BatchPart> parts_of(const data::Batch& batch) const;
  pipeline::Executor& executor_for(size_t micro_batches);

  Task& task_;
  parallel::GradientSync& sync_;
  const std::vector<Parameter>& trained_;
  parallel::Mesh& mesh_;
  PipelinePassesOptions options_;
  std::vector<pipeline::Timed> timeline_;                            // of the last step
  std::map<size_t, std::unique_ptr<pipeline::Executor>> executors_;  // by the number of micro-batches
};

}  // namespace tandem::train
