#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

#include "tandem/comm/world.h"
#include "tandem/layers/layer.h"

namespace tandem::layers::test_layers {

inline Tensor numbers(at::IntArrayRef sizes, double phase) {
  return at::sin(at::arange(c10::multiply_integers(sizes), at::kDouble) * 1.3 + phase).reshape(sizes);
}

/// float64, drawn as "layer".
template <class Made>
std::shared_ptr<Made> ready(std::shared_ptr<Made> layer) {
  layer->initialize(/*seed=*/3, "layer");
  layer->to(at::kDouble);
  return layer;
}

/// What training leaves: outputs of each step, gradients of x in the first, weights at the end.
struct Trained {
  std::vector<Tensor> outputs;
  Tensor dx;
  std::map<std::string, Tensor> weights;
};

/// Ten steps of SGD on the same x. `loss` is that of one device.
inline Trained train(const std::function<Tensor(const Tensor&)>& forward, torch::nn::Module& module, const Tensor& x,
                     const std::function<Tensor(const Tensor&)>& loss) {
  Trained trained;
  for (int step = 0; step < 10; ++step) {
    const auto input = x.detach().clone().requires_grad_();
    const auto y = forward(input);
    loss(y).backward();
    trained.outputs.push_back(y.detach().clone());
    if (step == 0) trained.dx = input.grad().clone();
    const at::NoGradGuard no_grad;
    for (auto& parameter : module.parameters()) {
      parameter.sub_(parameter.grad() * 0.05);
      parameter.mutable_grad() = Tensor();
    }
  }
  for (const auto& entry : module.named_parameters()) trained.weights[entry.key()] = entry.value().detach().clone();
  return trained;
}

inline bool are_equal(const Tensor& a, const Tensor& b) {
  return a.sizes() == b.sizes() && at::allclose(a, b, 1e-12, 1e-12);
}

/// That this rank's weights are its parts of those of one device.
inline void expect_parts(const Layer& layer, const std::map<std::string, Tensor>& own,
                         const std::map<std::string, Tensor>& whole) {
  std::map<std::string, Layer::Part> parts;
  for (const auto& part : layer.parts()) parts[part.parameter] = part;
  for (const auto& [name, weight] : own) {
    const auto part = parts.find(name);
    if (part == parts.end()) {
      EXPECT_TRUE(are_equal(weight, whole.at(name))) << name;
      continue;
    }
    const auto& [dim, first, count, total] = part->second.split;
    const auto& all = whole.at(part->second.whole);
    EXPECT_EQ(total, all.size(dim)) << name;
    EXPECT_TRUE(are_equal(weight, all.narrow(dim, first, count))) << name;
  }
  for (const auto& [name, part] : parts) EXPECT_TRUE(own.contains(name)) << name;
}

/// The same of the layers that are children of a module, by their names in it.
inline void expect_parts_of_children(const torch::nn::Module& module, const std::map<std::string, Tensor>& own,
                                     const std::map<std::string, Tensor>& whole) {
  for (const auto& child : module.named_children()) {
    const auto prefix = child.key() + ".";
    const auto of_child = [&](const std::map<std::string, Tensor>& all) {
      std::map<std::string, Tensor> some;
      for (const auto& [name, weight] : all) {
        if (name.starts_with(prefix)) some[name.substr(prefix.size())] = weight;
      }
      return some;
    };
    const auto* layer = dynamic_cast<const Layer*>(child.value().get());
    if (layer != nullptr) expect_parts(*layer, of_child(own), of_child(whole));
  }
}

/// Runs `body` on 1 to 5 ranks.
inline void on_ranks(const std::function<void(comm::ProcessGroup&)>& body) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    comm::run_ranks(ranks, body, {.threads = 1});
  }
}

}  // namespace tandem::layers::test_layers
