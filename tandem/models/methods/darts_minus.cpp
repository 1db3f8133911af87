#include <ATen/ATen.h>

#include "tandem/models/methods/methods.h"

namespace tandem::models::methods {
namespace {

class SumAndSkip final : public Mixture {
 public:
  SumAndSkip(const MixtureOptions& mixture, const CellLayerOptions& layers) : Mixture(mixture.operations, layers) {
    skip_ = register_module("auxiliary_op", make_operation("skip_connect", layers));
  }

  /// The last column: the skip connection's.
  Tensor add_to(Tensor sum, const CellValue& x, const Tensor& weights) const override {
    const auto columns = weights.unbind();
    return added(add_operations(std::move(sum), x, columns), skip_->scaled(x, columns.back()));
  }

 private:
  std::shared_ptr<CellLayer> skip_;
};

Tensor with_skip(const Alphas& alphas) {
  const auto shares = operation_shares(alphas);
  return at::cat({shares, at::full({shares.size(0), 1}, 1 - alphas.progress, shares.options())}, 1);
}

}  // namespace

SearchMethod darts_minus() {
  return {.name = "darts-minus",
          .doc = "a skip connection besides, whose weight falls from 1 to 0",
          .keeps_progress = true,
          .weights = with_skip,
          .shares = operation_shares,
          .make_mixture = mixture_of<SumAndSkip>};
}

}  // namespace tandem::models::methods
