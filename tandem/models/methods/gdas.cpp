#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/context.h"
#include "tandem/base/rng.h"
#include "tandem/base/tangent.h"
#include "tandem/models/methods/methods.h"

namespace tandem::models::methods {
namespace {

constexpr double kHottest = 10, kColdest = 0.1;

int64_t size_of(const CellLayer& layer) {
  int64_t size = 0;
  for (const auto& parameter : layer.parameters()) size += parameter.numel();
  return size;
}

/// The operation whose weight is not zero.
class Drawn final : public Mixture {
 public:
  Drawn(const MixtureOptions& mixture, const CellLayerOptions& layers) : Mixture(mixture.operations, layers) {}

  Tensor add_to(Tensor sum, const CellValue& x, const Tensor& weights) const override {
    const auto place = drawn(weights);
    return added(sum, operations()[place]->scaled(x, weights[static_cast<int64_t>(place)]));
  }

 private:
  /// Where none is drawn, as in a rehearsal, whose values are zeros: the one that needs most memory.
  size_t drawn(const Tensor& weights) const {
    const auto values = weights.detach().to(at::kCPU, at::kDouble).contiguous();
    const std::span row(values.const_data_ptr<double>(), operations().size());
    const auto largest = std::ranges::max_element(row);
    if (*largest > 0) return static_cast<size_t>(largest - row.begin());
    const auto size = [](const auto& layer) { return size_of(*layer); };
    return static_cast<size_t>(std::ranges::max_element(operations(), {}, size) - operations().begin());
  }
};

/// Numbers of Gumbel's distribution, the same in all passes of a step and on all ranks.
Tensor gumbel(const Alphas& alphas) {
  const auto context = current_context();
  CounterRng random(context.seed, alphas.stream + static_cast<uint64_t>(context.step));
  const auto numbers = at::empty(alphas.operations.sizes(), at::kDouble);
  std::span values(numbers.mutable_data_ptr<double>(), static_cast<size_t>(numbers.numel()));
  for (auto& value : values) value = -std::log(-std::log(random.uniform(0x1p-54, 1)));
  return numbers.to(alphas.operations.options().requires_grad(false));
}

/// 1 for the drawn operation of each edge, with the gradient of the softmax from which it was drawn. A rehearsal draws
/// none.
Tensor one_of_each(const Alphas& alphas) {
  auto logits = differentiable_log_softmax(alphas.operations, 1);
  if (alphas.is_training) {
    const double temperature = kHottest + (kColdest - kHottest) * alphas.progress;
    logits = differentiable_log_softmax((logits + gumbel(alphas)) / temperature, 1);
  }
  const auto soft = logits.exp();
  auto hard = at::zeros_like(soft.detach());
  if (current_context().step != Context::kRehearsal) hard.scatter_(1, soft.detach().argmax(1, /*keepdim=*/true), 1);
  return hard + (soft - soft.detach());
}

}  // namespace

SearchMethod gdas() {
  return {.name = "gdas",
          .doc = "one operation of each edge, drawn in each step",
          .leaves_out = true,
          .weights = one_of_each,
          .shares = operation_shares,
          .make_mixture = mixture_of<Drawn>};
}

}  // namespace tandem::models::methods
