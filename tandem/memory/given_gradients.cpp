#include "tandem/memory/given_gradients.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

namespace tandem::memory {
namespace {

/// Stands behind the outputs.
class GivenGradients : public torch::autograd::Node {
 public:
  GivenGradients(const std::vector<torch::autograd::Edge>& outputs, std::vector<Tensor> gradients)
      : gradients_(std::move(gradients)) {
    add_input_metadata(nothing());
    for (const auto& output : outputs) add_next_edge(output);
  }

  /// Where backward starts: a tensor without memory.
  static Tensor nothing() { return at::empty({0}, at::kFloat); }

  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override { return std::move(gradients_); }
  std::string name() const override { return "GivenGradients"; }

 private:
  std::vector<Tensor> gradients_;
};

}  // namespace

void run_backward(const std::vector<torch::autograd::Edge>& outputs, std::vector<Tensor> gradients) {
  if (outputs.empty()) return;
  const auto start = std::make_shared<GivenGradients>(outputs, std::move(gradients));
  torch::autograd::Engine::get_default_engine().execute({{start, 0}}, {GivenGradients::nothing()},
                                                        /*keep_graph=*/false, /*create_graph=*/false,
                                                        /*accumulate_grad=*/true);
}

}  // namespace tandem::memory
