#include "tandem/layers/linear.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "tandem/comm/collectives.h"
#include "tandem/layers/detail/draw.h"
#include "tandem/layers/exchange.h"

namespace tandem::layers {
namespace {

double bound_of(int64_t in) { return 1 / std::sqrt(static_cast<double>(std::max<int64_t>(in, 1))); }

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
    detail::draw_part(part, split, bound_of(in_), seed, name + "." + parameter);
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
  const auto term = at::linear(factor(own), factor(weight_));
  auto& group = in_.group();
  if (!options_.rows) {
    const auto y = reduce_from_region(term, group);
    return bias_.defined() ? y + bias_ : y;
  }
  const auto y = comm::reduce_scatter(term, group, *options_.rows);
  return bias_.defined() ? y + copy_to_region(bias_, group) : y;
}

void RowLinear::initialize(uint64_t seed, const std::string& name) {
  detail::draw_part(weight_, in_.split(1), bound_of(in_.total()), seed, name + ".weight");
  if (bias_.defined()) detail::draw_whole(bias_, bound_of(in_.total()), seed, name + ".bias");
}

std::vector<Layer::Part> RowLinear::parts() const { return {{"weight", in_.split(1)}}; }

}  // namespace tandem::layers
