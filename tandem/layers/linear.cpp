#include "tandem/layers/linear.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "tandem/comm/collectives.h"
#include "tandem/layers/detail/draw.h"
#include "tandem/layers/exchange.h"

namespace tandem::layers {
namespace {

/// Draws a parameter, or the part of it that `split` says, of a layer with so many inputs.
void draw(LinearDraw draw, const Tensor& tensor, const std::optional<parallel::Split>& split, int64_t in, uint64_t seed,
          const std::string& name) {
  constexpr double kDeviation = 0.02;
  const double bound = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(in, 1)));
  const bool is_bias = tensor.dim() == 1;
  if (draw == LinearDraw::fan_in) return detail::draw_uniform(tensor, split, bound, seed, name);
  if (!is_bias) return detail::draw_normal(tensor, split, kDeviation, seed, name);
  const at::NoGradGuard no_grad;
  tensor.zero_();
}

}  // namespace

ColumnLinear::ColumnLinear(int64_t in, const Division& out, const Options& options)
    : Layer("Linear"), in_(in), out_(out), options_(options) {
  TORCH_CHECK_VALUE(options.stacks == 1 || (options.stacks > 1 && !options.gathers), "linear: ", options.stacks,
                    " stacks are gathered, wanted one");
  weight_ = register_parameter("weight", at::empty({options.stacks * out.count(), in}));
  if (options.bias) bias_ = register_parameter("bias", at::empty({options.stacks * out.count()}));
}

Tensor ColumnLinear::forward(const Tensor& x) const {
  const auto input = options_.copies ? copy_to_region(x, out_.group()) : x;
  const auto y = at::linear(factor(input), factor(weight_), factor(bias_));
  return options_.gathers ? gather_from_region(y, -1, out_) : y;
}

void ColumnLinear::initialize(uint64_t seed, const std::string& name) {
  for (const auto& [parameter, split, first] : parts()) {
    const auto part = (parameter == "weight" ? weight_ : bias_).narrow(0, first, split.count);
    draw(options_.draw, part, split, in_, seed, name + "." + parameter);
  }
}

std::vector<Layer::Part> ColumnLinear::parts() const {
  std::vector<Part> parts;
  for (int64_t i = 0; i < options_.stacks; ++i) {
    const parallel::Split split = {0, i * out_.total() + out_.first(), out_.count(), options_.stacks * out_.total()};
    parts.push_back({"weight", split, i * out_.count()});
    if (bias_.defined()) parts.push_back({"bias", split, i * out_.count()});
  }
  return parts;
}

RowLinear::RowLinear(const Division& in, int64_t out, const Options& options)
    : Layer("Linear"), in_(in), out_(out), options_(options) {
  weight_ = register_parameter("weight", at::empty({out, in.count()}));
  if (options.bias) bias_ = register_parameter("bias", at::empty({out}));
}

Tensor RowLinear::forward(const Tensor& x) const {
  const auto own = options_.scatters ? scatter_to_region(x, -1, in_) : x;
  auto& group = in_.group();
  if (group.size() == 1) return at::linear(factor(own), factor(weight_), factor(bias_));
  const auto term = at::linear(factor(own), factor(weight_));
  if (!options_.rows) {
    const auto y = reduce_from_region(term, group);
    return bias_.defined() ? y + bias_ : y;
  }
  const auto y = comm::reduce_scatter(term, group, *options_.rows);
  return bias_.defined() ? y + copy_to_region(bias_, group) : y;
}

void RowLinear::initialize(uint64_t seed, const std::string& name) {
  draw(options_.draw, weight_, in_.split(1), in_.total(), seed, name + ".weight");
  if (bias_.defined()) draw(options_.draw, bias_, std::nullopt, in_.total(), seed, name + ".bias");
}

std::vector<Layer::Part> RowLinear::parts() const { return {{"weight", in_.split(1)}}; }

}  // namespace tandem::layers
