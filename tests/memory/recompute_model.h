#pragma once
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <memory>
#include <vector>

#include "tandem/memory/recompute.h"

namespace tandem::memory {

/// Dropout(relu(norm(linear))), float64, random numbers from torch's default generator or its own.
struct Cell : torch::nn::Module {
  explicit Cell(int64_t width);
  Tensor forward(const Tensor& x);

  torch::nn::Linear linear = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
  std::optional<at::Generator> generator;
};
using Cells = std::vector<std::shared_ptr<Cell>>;

/// The cells one after the other.
Tensor run_cells(const Cells& cells, const Tensor& x);

/// The cells as one region, in the options' manner.
Tensor recompute_cells(const Cells& cells, const Tensor& x, RecomputeOptions options = {});

/// Five steps of eight cells, from the same seed each time; `run` runs the cells. Returns parameters, buffers,
/// gradients, the output of each step and the next random number.
std::vector<Tensor> train(const std::function<Tensor(const Cells&, const Tensor&)>& run,
                          const std::optional<at::Generator>& generator = std::nullopt);

/// True if all tensors have the same bits.
bool are_equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b);

}  // namespace tandem::memory
