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
  weight_ = register_parameter("weight", at::empty({out.count(), in}));
  if (options.bias) bias_ = register_parameter("bias", at::empty({out.count()}));
}

Tensor ColumnLinear::forward(const Tensor& x) const {
  const auto input = options_.copies ? copy_to_region(x, out_.group()) : x;
  const auto y = at::linear(factor(input), factor(weight_), factor(bias_));
  return options_.gathers ? gather_from_region(y, -1, out_) : y;
}

void ColumnLinear::initialize(uint64_t seed, const std::string& name) {
  detail::draw_part(weight_, out_.split(0), bound_of(in_), seed, name + ".weight");
  if (bias_.defined()) detail::draw_part(bias_, out_.split(0), bound_of(in_), seed, name + ".bias");
}

std::vector<Layer::Part> ColumnLinear::parts() const {
  std::vector<Part> parts = {{"weight", out_.split(0)}};
  if (bias_.defined()) parts.push_back({"bias", out_.split(0)});
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
