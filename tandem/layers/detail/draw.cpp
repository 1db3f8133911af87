#include "tandem/layers/detail/draw.h"

#include <ATen/ATen.h>

#include "tandem/base/rng.h"

namespace tandem::layers::detail {
namespace {

/// By index, whatever the memory format.
void draw(const Tensor& tensor, const Box& box, at::IntArrayRef whole, double bound, uint64_t seed,
          const std::string& name) {
  const at::NoGradGuard no_grad;
  const auto values = at::empty(tensor.sizes(), tensor.options());
  fill_uniform_(values, bound, seed, stream_of(name), box, whole);
  tensor.copy_(values);
}

}  // namespace

void draw_part(const Tensor& part, const parallel::Split& split, double bound, uint64_t seed, const std::string& name) {
  const parallel::Placement placement{.splits = {split}};
  draw(part, placement.box(part.sizes()), placement.whole_sizes(part.sizes()), bound, seed, name);
}

void draw_normal_part(const Tensor& part, const parallel::Split& split, double deviation, uint64_t seed,
                      const std::string& name) {
  const parallel::Placement placement{.splits = {split}};
  const at::NoGradGuard no_grad;
  fill_normal_(part, deviation, seed, stream_of(name), placement.box(part.sizes()),
               placement.whole_sizes(part.sizes()));
}

void draw_whole(const Tensor& tensor, double bound, uint64_t seed, const std::string& name) {
  draw(tensor, whole_box(tensor.sizes()), tensor.sizes(), bound, seed, name);
}

}  // namespace tandem::layers::detail
