// Trains a deep network in less than half of its memory: groups of layers are computed again in backward.
#include <ATen/ATen.h>

#include <cstdio>

#include "tandem/comm/run_main.h"
#include "tandem/memory/meter.h"
#include "tandem/memory/recompute.h"

using namespace tandem;

std::vector<Tensor> weights;

Tensor layers(const Tensor& x, size_t begin, size_t end) {
  auto y = x;
  for (size_t i = begin; i < end; ++i) y = y.mm(weights[i]).tanh().sin();
  return y;
}

struct Result {
  Tensor gradient;  // of the first layer's weight
  int64_t peak;
};

template <class Run>
Result step(const Tensor& x, const Run& run) {
  for (auto& weight : weights) weight.mutable_grad() = at::zeros_like(weight);
  const memory::ProbeScope probe;
  run(x).square().mean().backward();
  return {weights[0].grad().clone(), probe.account().peak_bytes()};
}

void run() {
  memory::install_meter();  // before the first tensor
  for (int i = 0; i < 16; ++i) weights.push_back((at::randn({64, 64}) / 8).requires_grad_());
  const auto x = at::randn({512, 64});

  const auto plain = step(x, [](const Tensor& in) { return layers(in, 0, weights.size()); });
  const auto again = step(x, [](const Tensor& in) {
    auto y = in;
    for (size_t i = 0; i < weights.size(); i += 4) {
      y = memory::recompute([i](const Tensor& part) { return layers(part, i, i + 4); }, y);
    }
    return y;
  });

  std::printf("peak of a step: %ld bytes; recomputed: %ld bytes\n", plain.peak, again.peak);
  TORCH_CHECK(again.gradient.equal(plain.gradient), "the gradients should have the same bits");
  TORCH_CHECK(2 * again.peak < plain.peak, "the peak should be less than half");
}

int main() { return comm::run_main(run); }
