#include "tests/search/smooth_network.h"

#include <ATen/ATen.h>

#include "tandem/base/rng.h"
#include "tandem/base/tangent.h"
#include "tandem/comm/split.h"

namespace tandem::search::test_search {
namespace {

constexpr int64_t kChannels = 4, kClasses = 3, kSide = 6;

Tensor random(const std::vector<int64_t>& sizes, double deviation, uint64_t stream) {
  auto values = at::empty(sizes);
  fill_normal_(values, deviation, 11, stream);
  return values.to(at::kDouble);
}

Tensor mixture(const Tensor& x, const Tensor& convolution, const Tensor& shares) {
  return x * shares[0] + at::avg_pool2d(x, 3, 1, 1) * shares[1] +
         at::conv2d(x, convolution, {}, 1, 1).tanh() * shares[2];
}

Tensor scores_of(const std::vector<Tensor>& weights, const Tensor& shares, const Tensor& images) {
  auto x = at::softplus(at::conv2d(images, weights[0], {}, 1, 1));
  x = mixture(x, weights[1], shares[0]) + mixture(x, weights[2], shares[1]);
  return at::linear(at::softplus(x).mean({2, 3}), weights[3], weights[4]);
}

Tensor mean_loss(const Tensor& scores, const Tensor& labels) { return differentiable_cross_entropy(scores, labels); }

/// The loss of each rank's samples, of which this rank knows its own.
class ShardedTask : public train::ModuleTask {
 public:
  ShardedTask(const std::shared_ptr<SmoothModule>& module, int rank)
      : ModuleTask(module, mean_loss), module_(module), rank_(rank) {}

  Tensor loss(const data::Batch& batch, std::span<const int64_t> sizes) override {
    const auto scores = module_->forward(batch.images);
    const auto own = batch.images.size(0) > 0 ? mean_loss(scores, batch.labels) : scores.sum();
    auto place = at::zeros({std::ssize(sizes)}, at::kDouble);
    place[rank_].fill_(1);
    return place * own;
  }

 private:
  std::shared_ptr<SmoothModule> module_;
  int rank_;
};

}  // namespace

SmoothModule::SmoothModule(uint64_t seed) {
  const std::vector<std::vector<int64_t>> sizes = {{kChannels, 2, 3, 3},
                                                   {kChannels, kChannels, 3, 3},
                                                   {kChannels, kChannels, 3, 3},
                                                   {kClasses, kChannels},
                                                   {kClasses}};
  for (const auto& size : sizes) {
    const auto number = weights_.size();
    weights_.push_back(register_parameter("weight" + std::to_string(number), random(size, 0.4, seed + number)));
  }
  const auto alphas = register_module("alphas", std::make_shared<torch::nn::Module>());
  alphas_ = alphas->register_parameter("normal", random({2, 3}, 0.3, seed + 50));
}

Tensor SmoothModule::forward(const Tensor& images) const {
  return scores_of(weights_, differentiable_log_softmax(alphas_, 1).exp(), images);
}

Tensor SmoothModule::loss(const std::vector<Tensor>& weights, const Tensor& shares, const data::Batch& batch) const {
  return mean_loss(scores_of(weights, shares, batch.images), batch.labels);
}

std::unique_ptr<train::Task> task_of(const std::shared_ptr<SmoothModule>& module, bool has_shards, int rank) {
  if (has_shards) return std::make_unique<ShardedTask>(module, rank);
  return std::make_unique<train::ModuleTask>(module, mean_loss);
}

data::Batch batch_of(int64_t samples, uint64_t stream, int rank, int ranks) {
  const auto [begin, end] = comm::split_range(samples, ranks, rank);
  const auto images = random({samples, 2, kSide, kSide}, 1, 100 + stream);
  const auto labels = at::arange(samples).add(static_cast<int64_t>(stream)).remainder(kClasses);
  return {images.slice(0, begin, end), labels.slice(0, begin, end), samples, begin};
}

data::Batch sharded_batch_of(int64_t samples, uint64_t stream, int64_t shards, int rank, int ranks) {
  const auto all = batch_of(samples, stream);
  std::vector<Tensor> images, labels;
  for (int64_t shard = rank; shard < shards; shard += ranks) {
    const auto [begin, end] = comm::split_range(samples, static_cast<int>(shards), static_cast<int>(shard));
    images.push_back(all.images.slice(0, begin, end));
    labels.push_back(all.labels.slice(0, begin, end));
  }
  return {at::cat(images), at::cat(labels), samples, 0};
}

double relative_difference(const Tensor& a, const Tensor& b) {
  return (a - b).norm().item<double>() / b.norm().item<double>();
}

}  // namespace tandem::search::test_search
