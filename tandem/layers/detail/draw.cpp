#include "tandem/layers/detail/draw.h"

#include <ATen/ATen.h>

#include "tandem/base/rng.h"

namespace tandem::layers::detail {
namespace {

using Fill = void (*)(const Tensor&, double, uint64_t, uint64_t, const Box&, at::IntArrayRef);

void draw(Fill fill, const Tensor& tensor, const std::optional<parallel::Split>& split, double scale, uint64_t seed,
          const std::string& name) {
  parallel::Placement placement;
  if (split) placement.splits = {*split};
  const at::NoGradGuard no_grad;
  const auto values = at::empty(tensor.sizes(), tensor.options());
  fill(values, scale, seed, stream_of(name), placement.box(tensor.sizes()), placement.whole_sizes(tensor.sizes()));
  tensor.copy_(values);
}

}  // namespace

void draw_uniform(const Tensor& tensor, const std::optional<parallel::Split>& split, double bound, uint64_t seed,
                  const std::string& name) {
  draw(fill_uniform_, tensor, split, bound, seed, name);
}

void draw_normal(const Tensor& tensor, const std::optional<parallel::Split>& split, double deviation, uint64_t seed,
                 const std::string& name) {
  draw(fill_normal_, tensor, split, deviation, seed, name);
}

}  // namespace tandem::layers::detail
