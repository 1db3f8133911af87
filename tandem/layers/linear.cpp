#include "tandem/layers/linear.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "tandem/comm/collectives.h"
#include "tandem/comm/region.h"
#include "tandem/layers/detail/draw.h"
#include "tandem/layers/detail/product.h"
#include "tandem/layers/detail/stacked.h"
#include "tandem/layers/term.h"

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

Linear::Linear(int64_t in, int64_t out, bool bias, LinearDraw draw) : Layer("Linear"), draw_(draw) {
  weight_ = register_parameter("weight", at::empty({out, in}));
  if (bias) bias_ = register_parameter("bias", at::empty({out}));
}

Tensor Linear::forward(const Tensor& x) const { return detail::linear(factor(x), factor(weight_), factor(bias_)); }

void Linear::initialize(uint64_t seed, const std::string& name) {
  const int64_t in = weight_.size(1);
  draw(draw_, weight_, std::nullopt, in, seed, name + ".weight");
  if (bias_.defined()) draw(draw_, bias_, std::nullopt, in, seed, name + ".bias");
}

ColumnLinear::ColumnLinear(int64_t in, const Division& out, const Options& options)
    : Layer("Linear"), in_(in), out_(out), options_(options) {
  TORCH_CHECK_VALUE(options.stacks == 1 || (options.stacks > 1 && !options.gathers), "linear: ", options.stacks,
                    " stacks are gathered, wanted one");
  add("weight", {options.stacks * out.count(), in}, weights_);
  if (options.bias) add("bias", {options.stacks * out.count()}, biases_);
}

void ColumnLinear::add(const std::string& name, at::IntArrayRef sizes, std::vector<Tensor>& stacks) {
  const auto all = at::empty(sizes);
  if (options_.stacks == 1 || out_.group().size() == 1) {
    stacks.push_back(register_parameter(name, all));
    return;
  }
  for (int64_t i = 0; i < options_.stacks; ++i) {
    const auto own = all.narrow(0, i * out_.count(), out_.count()).variable_data();
    stacks.push_back(register_parameter(name + "_" + std::to_string(i), own));
  }
}

Tensor ColumnLinear::forward(const Tensor& x) const {
  const auto input = options_.copies ? comm::copy_to_region(x, out_.group()) : x;
  const auto bias = biases_.empty() ? Tensor() : detail::stacked(biases_);
  const auto y = detail::linear(factor(input), factor(detail::stacked(weights_)), factor(bias));
  return options_.gathers ? comm::gather_from_region(y, out_.group(), -1, out_.counts()) : y;
}

void ColumnLinear::initialize(uint64_t seed, const std::string& name) {
  auto own = named_parameters(/*recurse=*/false);
  for (const auto& part : parts()) {
    draw(options_.draw, own[part.parameter], part.split, in_, seed, name + "." + part.whole);
  }
}

std::vector<Layer::Part> ColumnLinear::parts() const {
  std::vector<Part> parts;
  const auto add = [&](const std::string& name, const std::vector<Tensor>& stacks) {
    const auto count = static_cast<int64_t>(stacks.size()), total = options_.stacks * out_.total();
    if (count == 1) {  // of one stack, or of all of them on one rank
      parts.push_back({name, name, {0, out_.first(), stacks[0].size(0), total}});
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      const parallel::Split split = {0, i * out_.total() + out_.first(), out_.count(), total};
      parts.push_back({name + "_" + std::to_string(i), name, split});
    }
  };
  add("weight", weights_);
  if (options_.bias) add("bias", biases_);
  return parts;
}

RowLinear::RowLinear(const Division& in, int64_t out, const Options& options)
    : Layer("Linear"), in_(in), out_(out), options_(options) {
  weight_ = register_parameter("weight", at::empty({out, in.count()}));
  if (options.bias) bias_ = register_parameter("bias", at::empty({out}));
}

Tensor RowLinear::forward(const Tensor& x) const {
  const auto own = options_.scatters ? comm::scatter_to_region(x, in_.group(), -1, in_.counts()) : x;
  auto& group = in_.group();
  if (group.size() == 1) return detail::linear(factor(own), factor(weight_), factor(bias_));
  const auto term = term_of(detail::linear(factor(own), factor(weight_)), group);
  if (!options_.rows) {
    const auto y = comm::reduce_from_region(term, group);
    return bias_.defined() ? y + bias_ : y;
  }
  const auto y = comm::reduce_scatter(term, group, *options_.rows);
  return bias_.defined() ? y + comm::copy_to_region(bias_, group) : y;
}

void RowLinear::initialize(uint64_t seed, const std::string& name) {
  draw(options_.draw, weight_, in_.split(1), in_.total(), seed, name + ".weight");
  if (bias_.defined()) draw(options_.draw, bias_, std::nullopt, in_.total(), seed, name + ".bias");
}

std::vector<Layer::Part> RowLinear::parts() const { return {{"weight", "weight", in_.split(1)}}; }

}  // namespace tandem::layers
