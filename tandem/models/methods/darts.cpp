#include <ATen/ATen.h>

#include "tandem/base/tangent.h"
#include "tandem/models/methods/methods.h"

namespace tandem::models::methods {
namespace {

class Sum final : public Mixture {
 public:
  Sum(const MixtureOptions& mixture, const CellLayerOptions& layers) : Mixture(mixture.operations, layers) {}

  Tensor add_to(Tensor sum, const CellValue& x, const Tensor& weights) const override {
    return add_operations(std::move(sum), x, weights.unbind());
  }
};

}  // namespace

Tensor operation_shares(const Alphas& alphas) { return differentiable_log_softmax(alphas.operations, 1).exp(); }

SearchMethod darts() {
  return {.name = "darts",
          .doc = "all operations at once, each times its share",
          .weights = operation_shares,
          .shares = operation_shares,
          .make_mixture = mixture_of<Sum>};
}

}  // namespace tandem::models::methods
