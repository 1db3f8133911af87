#pragma once
#include <optional>

#include "tandem/parallel/strategy.h"
#include "tandem/train/detail/ordered_buffers.h"
#include "tandem/train/micro_batches.h"
#include "tandem/train/passes/passes.h"
#include "tandem/train/task.h"

namespace tandem::train {

struct PlainPassesOptions {
  int64_t accumulate = 1, shards = 0;  // as SupervisedStepOptions
  parallel::Shares shares;             // of a batch
  /// Rows of a parameter are updated in backward, which then begins from a finite loss only: the loss is waited for.
  bool steps_in_backward = false;
};

/// One micro-batch after the other, forward and then backward, with the whole chain on each rank.
class PlainPasses : public Passes {
 public:
  /// `trained`: as this rank holds them. `data`: the ranks that share a batch. All must outlive this object.
  PlainPasses(Task& task, parallel::GradientSync& sync, const std::vector<Parameter>& trained, comm::ProcessGroup& data,
              const PlainPassesOptions& options);

  std::vector<double> run(const data::Batch& batch, double scale, detail::StepNumbers& numbers) override;
  memory::Composition rehearse(const data::Batch& batch, memory::Account held, const Update& update) override;
  std::vector<Step::Blocks> rehearse_blocks(const data::Batch& batch, bool in_parts) override;

 private:
  std::vector<BatchPart> parts_of(const data::Batch& batch) const;
  memory::Composition rehearse_part(const BatchPart& part, memory::Account held, bool adds, const Update& update);
  std::vector<memory::BlockRecord> rehearse_chain(const memory::Chain& chain, const BatchPart& part, bool adds,
                                                  const parallel::SyncMemory& sync);

  Task& task_;
  parallel::GradientSync& sync_;
  const std::vector<Parameter>& trained_;
  comm::ProcessGroup& data_;
  PlainPassesOptions options_;
  std::optional<detail::OrderedBuffers> ordered_buffers_;
};

}  // namespace tandem::train
