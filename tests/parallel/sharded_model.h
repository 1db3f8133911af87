#pragma once
#include <ATen/ATen.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>

#include "tandem/base/context.h"
#include "tandem/comm/split.h"
#include "tandem/memory/chain.h"
#include "tandem/memory/meter.h"
#include "tandem/parallel/parameter.h"

namespace tandem::parallel {

/// Blocks of one type: a convolution with channels last, a shortcut around a linear map, a linear map: 70, 56 and 16
/// numbers. Another parameter, of 2 numbers, is in no block.
struct ShardedModel {
  explicit ShardedModel(at::ScalarType type = at::kDouble) {
    const CategoryScope scope(Category::parameters);
    const at::NoGradGuard no_grad;
    conv->to(type), middle->to(type), last->to(type);
    conv->weight.set_data(conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
    extra = at::tensor({0.5, 2.0}, type).requires_grad_();
    double phase = 0;
    for (const auto& parameter : parameters()) {
      const auto numbers = at::arange(parameter.tensor.numel(), at::kDouble).mul_(3).add_(phase++).sin_().mul_(0.4);
      parameter.tensor.copy_(numbers.view(parameter.tensor.sizes()));
    }
    chain.blocks = {
        memory::make_block("conv", {conv.ptr()},
                           [conv = conv](const Tensor& x) mutable {
                             return conv->forward(x).relu_().mean({2, 3});
                           }),
        memory::make_block("middle", {middle.ptr()},
                           [middle = middle](const Tensor& x) mutable { return (x + middle->forward(x)).tanh_(); }),
        memory::make_block("last", {last.ptr()}, [last = last](const Tensor& x) mutable { return last->forward(x); })};
  }

  std::vector<Parameter> parameters() const {
    std::vector<Parameter> all;
    const auto add = [&](const std::string& name, const torch::nn::Module& module) {
      for (const auto& item : module.named_parameters()) {
        all.push_back(Parameter::replicated(name + "." + item.key(), item.value()));
      }
    };
    add("conv", *conv);
    add("middle", *middle);
    add("last", *last);
    all.push_back(Parameter::replicated("extra", extra));
    return all;
  }

  /// A sum over the samples: the losses of the ranks add up to the loss of all samples.
  Tensor loss(const Tensor& images) const { return (memory::run(chain, images) * extra).square().sum(); }

  /// The same seven images for each seed.
  static Tensor images(int64_t seed) {
    return at::arange(7 * 16, at::kDouble).add_(static_cast<double>(seed)).mul_(5).cos_().reshape({7, 1, 4, 4});
  }

  /// The images of one of several ranks.
  static Tensor images(int64_t seed, int rank, int ranks) {
    const auto [begin, end] = comm::split_range(7, ranks, rank);
    return images(seed).slice(0, begin, end);
  }

  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(1, 7, 3)};
  torch::nn::Linear middle{7, 7}, last{7, 2};
  Tensor extra;
  memory::Chain chain;
};

}  // namespace tandem::parallel
