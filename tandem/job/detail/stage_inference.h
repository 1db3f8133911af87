#pragma once
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tandem/pipeline/executor.h"

namespace tandem::job {

/// Forward through the stages of a pipeline: batches follow each other, so that most stages work most of the time. Each
/// passes as a whole, so that the results have the bits of one device.
class StageInference {
 public:
  /// The group, of the ranks along the pipeline, must outlive this object.
  StageInference(std::vector<int> rank_of, comm::ProcessGroup& group) : rank_of_(std::move(rank_of)), group_(group) {}

  /// How many batches follow each other. Of so many at most are outputs of a stage under way, in nobody's books.
  int64_t most_batches() const { return 2 * group_.size(); }

  /// `images`: of a batch, asked where the first stage is. `end`: is given what the last stage makes of a batch,
  /// [n, ...], where that is. `batches`: at most most_batches(). Collective.
  void run(int64_t batches, const std::function<memory::Chain(int stage)>& chain,
           const std::function<Tensor(int64_t batch)>& images,
           const std::function<void(int64_t batch, const Tensor& output)>& end);

  /// Gives all ranks what the one with the last stage has. Collective.
  Tensor share(const Tensor& value, at::IntArrayRef sizes, at::ScalarType type);

 private:
  std::vector<int> rank_of_;  // of each stage
  comm::ProcessGroup& group_;
  std::map<int64_t, std::unique_ptr<pipeline::Executor>> executors_;  // by the number of batches
};

}  // namespace tandem::job
