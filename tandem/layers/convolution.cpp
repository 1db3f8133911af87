#include "tandem/layers/convolution.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "tandem/comm/region.h"
#include "tandem/layers/detail/draw.h"
#include "tandem/layers/detail/product.h"
#include "tandem/layers/hybrid.h"
#include "tandem/layers/term.h"

namespace tandem::layers {
namespace {

/// A convolution has at least one channel.
const Division& checked(const Division& channels, int64_t total) {
  TORCH_CHECK_VALUE(std::ranges::min(channels.counts()) > 0, "convolution: ", channels.total(), " channels on ",
                    channels.counts().size(), " ranks, wanted at least one on each");
  TORCH_CHECK_VALUE(channels.total() == total, "convolution: ", channels.total(), " channels are divided, wanted ",
                    total);
  return channels;
}

Division channels_of(const Division& groups, int64_t wanted, int64_t channels) {
  TORCH_CHECK_VALUE(groups.total() == wanted, "convolution: ", groups.total(), " groups are divided, wanted ", wanted);
  TORCH_CHECK_VALUE(wanted > 0 && channels % wanted == 0, "convolution: ", channels, " channels in ", wanted,
                    " groups, wanted a multiple");
  return checked(groups.times(channels / wanted), channels);
}

/// [N, C, H, W] as [N, H, W, C] and back, in which order all ranks exchange it: it is that of a convolution's output in
/// memory, and of its gradient.
Tensor with_channels_last(const Tensor& x) { return x.permute({0, 2, 3, 1}); }
Tensor with_channels_second(const Tensor& x) { return x.permute({0, 3, 1, 2}); }

std::vector<Layer::Part> parts_of_outputs(const Division& out, bool has_bias) {
  std::vector<Layer::Part> parts = {{"weight", "weight", out.split(0)}};
  if (has_bias) parts.push_back({"bias", "bias", out.split(0)});
  return parts;
}

}  // namespace

Conv2d::Conv2d(const Options& options)
    : Conv2d(options, options.out, options.in / options.groups, options.bias ? options.out : 0) {}

Conv2d::Conv2d(const Options& whole, int64_t out, int64_t in, int64_t bias) : Layer("Conv2d"), options_(whole) {
  // Same memory format as oneDNN's channels-last gradient, so that a step needs no reordering.
  weight_ = register_parameter("weight", at::empty({out, in, whole.kernel.height, whole.kernel.width},
                                                   at::TensorOptions(), at::MemoryFormat::ChannelsLast));
  if (whole.bias) bias_ = register_parameter("bias", at::empty({bias}));
}

Tensor Conv2d::convolved(const Tensor& x, const Tensor& bias, int64_t groups) const {
  return detail::convolution(factor(x), factor(weight_), factor(bias),
                             {options_.stride.list(), options_.padding.list(), options_.dilation.list(), groups});
}

Tensor Conv2d::forward(const Tensor& x) const { return convolved(x, bias_, options_.groups); }

void Conv2d::initialize(uint64_t seed, const std::string& name) {
  const auto all = parts();
  const auto split_of = [&](const std::string& parameter) {
    const auto part = std::ranges::find(all, parameter, &Part::parameter);
    return part != all.end() ? std::optional(part->split) : std::nullopt;
  };
  const int64_t kernel = options_.kernel.height * options_.kernel.width;
  if (options_.draw == Draw::fan_out) {
    const double deviation = options_.gain * std::sqrt(2.0 / static_cast<double>(options_.out * kernel));
    detail::draw_normal(weight_, split_of("weight"), deviation, seed, name + ".weight");
    const at::NoGradGuard no_grad;
    if (bias_.defined()) bias_.zero_();
    return;
  }
  const auto fan_in = std::max<int64_t>(options_.in / options_.groups * kernel, 1);
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  detail::draw_uniform(weight_, split_of("weight"), bound, seed, name + ".weight");
  if (bias_.defined()) detail::draw_uniform(bias_, split_of("bias"), bound, seed, name + ".bias");
}

OutputConv2d::OutputConv2d(const Options& whole, const Division& out, bool gathers)
    : Conv2d(whole, checked(out, whole.out).count(), whole.in, out.count()), out_(out), gathers_(gathers) {}

Tensor OutputConv2d::forward(const Tensor& x) const {
  const auto input = with_channels_second(comm::copy_to_region(with_channels_last(x), out_.group()));
  const auto y = convolved(input, bias_);
  return gathers_ ? comm::gather_from_region(y, out_.group(), 1, out_.counts()) : y;
}

std::vector<Layer::Part> OutputConv2d::parts() const { return parts_of_outputs(out_, bias_.defined()); }

InputConv2d::InputConv2d(const Options& whole, const Division& in, bool scatters)
    : Conv2d(whole, whole.out, checked(in, whole.in).count(), whole.out), in_(in), scatters_(scatters) {}

Tensor InputConv2d::forward(const Tensor& x) const {
  const auto own = scatters_ ? comm::scatter_to_region(x, in_.group(), 1, in_.counts()) : x;
  if (in_.group().size() == 1) return convolved(own, bias_);
  const auto term = with_channels_last(term_of(convolved(own, {}), in_.group()));
  const auto y = with_channels_second(comm::reduce_from_region(term, in_.group()));
  return bias_.defined() ? y + bias_.view({1, options_.out, 1, 1}) : y;
}

std::vector<Layer::Part> InputConv2d::parts() const { return {{"weight", "weight", in_.split(1)}}; }

GroupConv2d::GroupConv2d(const Options& whole, const Division& groups, bool is_head, bool is_tail)
    : Conv2d(whole, channels_of(groups, whole.groups, whole.out).count(), whole.in / whole.groups,
             channels_of(groups, whole.groups, whole.out).count()),
      groups_(groups),
      in_(channels_of(groups, whole.groups, whole.in)),
      out_(channels_of(groups, whole.groups, whole.out)),
      is_head_(is_head),
      is_tail_(is_tail) {}

Tensor GroupConv2d::forward(const Tensor& x) const {
  const auto y = convolved(is_head_ ? to_model_parallel(x, in_) : x, bias_, groups_.count());
  return is_tail_ ? to_data_parallel(y, out_) : y;
}

std::vector<Layer::Part> GroupConv2d::parts() const { return parts_of_outputs(out_, bias_.defined()); }

}  // namespace tandem::layers
