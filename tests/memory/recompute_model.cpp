#include "tests/memory/recompute_model.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

namespace tandem::memory {

Cell::Cell(int64_t width)
    : linear(register_module("linear", torch::nn::Linear(width, width))),
      norm(register_module("norm", torch::nn::BatchNorm1d(width))) {
  to(at::kDouble);
}

Tensor Cell::forward(const Tensor& x) {
  const auto y = norm(linear(x)).relu();
  return y * at::empty_like(y).bernoulli_(0.75, generator);
}

Tensor run_cells(const Cells& cells, const Tensor& x) {
  auto y = x;
  for (const auto& cell : cells) y = cell->forward(y);
  return y;
}

Tensor recompute_cells(const Cells& cells, const Tensor& x, RecomputeOptions options) {
  options.modules.assign(cells.begin(), cells.end());
  options.restore_buffers = true;
  return recompute([cells](const Tensor& input) { return run_cells(cells, input); }, x, options);
}

std::vector<Tensor> train(const std::function<Tensor(const Cells&, const Tensor&)>& run,
                          const std::optional<at::Generator>& generator) {
  auto seeded = at::detail::createCPUGenerator(17);
  const auto random = [&](at::IntArrayRef sizes) { return at::randn(sizes, seeded, at::dtype(at::kDouble)); };
  if (!generator) at::manual_seed(5);
  Cells cells;
  std::vector<Tensor> weights, all;
  for (int i = 0; i < 8; ++i) {
    cells.push_back(std::make_shared<Cell>(8));
    cells.back()->generator = generator;
    for (auto& weight : cells.back()->parameters()) {
      const at::NoGradGuard no_grad;
      weight.copy_(random(weight.sizes()));
      weights.push_back(weight);
    }
  }
  for (int step = 0; step < 5; ++step) {
    const auto y = run(cells, random({12, 8}));
    for (auto& weight : weights) weight.mutable_grad().reset();
    y.square().mean().backward();
    const at::NoGradGuard no_grad;
    for (auto& weight : weights) weight.sub_(weight.grad(), 0.1);
    all.push_back(y.detach());
  }
  for (const auto& weight : weights) all.insert(all.end(), {weight.detach(), weight.grad()});
  for (const auto& cell : cells) {
    for (const auto& buffer : cell->buffers()) all.push_back(buffer);
  }
  all.push_back(at::rand({1}, generator, at::TensorOptions()));
  return all;
}

bool are_equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::ranges::equal(a, b, [](const Tensor& x, const Tensor& y) {
    return x.defined() == y.defined() && (!x.defined() || x.equal(y));
  });
}

}  // namespace tandem::memory
