#pragma once
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tandem/pipeline/executor.h"

namespace tandem::job {

/// Forward through the stages of a pipeline, several micro-batches at once.
class StageInference {
 public:
  /// The group, of the ranks along the pipeline, must outlive this object.
  StageInference(std::vector<int> rank_of, comm::ProcessGroup& group) : rank_of_(std::move(rank_of)), group_(group) {}

  /// What the last stage makes of images, [n, ...]; undefined where it is not. Collective.
  Tensor run(const Tensor& images, const std::function<memory::Chain(int stage)>& chain);

  /// The images of the largest micro-batch.
  int64_t most_images(int64_t images) const;

  /// Gives all ranks what the one with the last stage has. Collective.
  Tensor share(const Tensor& value, at::IntArrayRef sizes, at::ScalarType type);

 private:
  int micro_batches(int64_t images) const;

  std::vector<int> rank_of_;  // of each stage
  comm::ProcessGroup& group_;
  std::map<int, std::unique_ptr<pipeline::Executor>> executors_;  // by the number of micro-batches
};

}  // namespace tandem::job
