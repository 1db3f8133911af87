#pragma once
#include <ATen/ATen.h>

#include "tandem/base/rng.h"
#include "tandem/comm/split.h"
#include "tandem/parallel/gradient_sync.h"

namespace tandem::parallel {

/// A linear model with squared loss, and SGD with momentum, both by their definitions.
struct LinearModel {
  static constexpr int64_t kDim = 3;
  static constexpr double kRate = 0.1, kDecay = 0.9;

  Tensor weight = at::tensor({0.5, -1.0, 2.0}, at::kDouble);
  Tensor momentum = at::zeros({kDim}, at::kDouble);
  Tensor seen = at::zeros({}, at::kDouble);  // mean of the images, as a running statistic

  /// count x kDim, the same for each step.
  static Tensor images(int64_t step, int64_t count) {
    const auto images = at::empty({count, kDim}, at::kDouble);
    fill_normal_(images, 1.0, 5, static_cast<uint64_t>(step));
    return images;
  }

  Tensor losses(const Tensor& images) const { return (images.mv(weight) - images.sum({1})).square(); }

  /// Of the mean loss.
  Tensor gradient(const Tensor& images) const {
    return (2.0 * (images.mv(weight) - images.sum({1}))).unsqueeze(1).mul(images).mean({0});
  }

  void step(const Tensor& gradient, double decay = kDecay) {
    momentum.mul_(decay).add_(gradient);
    weight.add_(momentum, -kRate);
  }

  /// Forward and backward of a rank's images in `parts` micro-batches; `batch`: the images of all ranks.
  void run(GradientSync& sync, const Tensor& own, int64_t parts, int64_t batch) const {
    const auto counts = comm::split_sizes(own.size(0), static_cast<int>(parts));
    int64_t begin = 0;
    for (int64_t i = 0; i < parts; ++i) {
      const MicroBatch micro{i, parts, own.size(0), batch};
      sync.before_forward(micro);
      const auto loss = losses(own.narrow(0, begin, counts[i])).sum() / static_cast<double>(batch);
      begin += counts[i];
      sync.before_backward(loss, micro);
      loss.backward();
      sync.after_backward(micro);
    }
  }
};

}  // namespace tandem::parallel
