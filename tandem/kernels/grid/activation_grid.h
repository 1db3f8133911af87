#pragma once
#include "tandem/kernels/grid/activation_bodies.h"
#include "tandem/kernels/grid/grid.h"

/// activation_kernels.h on a grid: the same contracts.
namespace tandem::kernels {

/// pass(function) with the function that `curve` names.
template <class Pass>
void with_curve(Curve curve, const Pass& pass) {
  switch (curve) {
    case Curve::swish:
      return pass(SwishCurve{});
    case Curve::mish:
      return pass(MishCurve{});
    case Curve::gelu:
      return pass(GeluCurve{});
  }
}

template <Grid G, class S>
void activate_on(G& grid, Curve curve, const S* x, int64_t count, S* y) {
  with_curve(curve, [&]<class Function>(Function) {
    grid.for_each(packs_of(count, kWidePack<S>), ActivateBody<Function, S>{x, count, y});
  });
}

template <Grid G, class S>
void differentiate_on(G& grid, Curve curve, const S* x, const S* gradient, int64_t count, S* out) {
  with_curve(curve, [&]<class Function>(Function) {
    grid.for_each(packs_of(count, kWidePack<S>), DifferentiateBody<Function, S>{x, gradient, count, out});
  });
}

}  // namespace tandem::kernels
