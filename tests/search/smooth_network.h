#pragma once
#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/train/module_task.h"

namespace tandem::search::test_search {

/// A network of two mixed edges whose operations are smooth, in float64: finite differences of it are accurate.
class SmoothModule : public torch::nn::Module {
 public:
  explicit SmoothModule(uint64_t seed = 1);

  Tensor forward(const Tensor& images) const;

  /// The mean loss of a batch with other weights and shares of the operations, for differentiation through a step.
  Tensor loss(const std::vector<Tensor>& weights, const Tensor& shares, const data::Batch& batch) const;

  std::vector<Tensor> weights() const { return weights_; }
  Tensor alphas() const { return alphas_; }

 private:
  std::vector<Tensor> weights_;
  Tensor alphas_;
};

/// Of `module`, with cross entropy; with shards its loss is [ranks].
std::unique_ptr<train::Task> task_of(const std::shared_ptr<SmoothModule>& module, bool has_shards = false,
                                     int rank = 0);

/// The same images and labels whatever the ranks: this rank's part of `samples`, by split_sizes().
data::Batch batch_of(int64_t samples, uint64_t stream, int rank = 0, int ranks = 1);

/// The same as a loader with `shards` gives it.
data::Batch sharded_batch_of(int64_t samples, uint64_t stream, int64_t shards, int rank, int ranks);

/// |a - b| / |b|.
double relative_difference(const Tensor& a, const Tensor& b);

}  // namespace tandem::search::test_search
