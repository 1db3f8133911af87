#include "tandem/layers/convolution.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "tandem/layers/detail/draw.h"
#include "tandem/layers/exchange.h"
#include "tandem/layers/hybrid.h"

namespace tandem::layers {
namespace {

Tensor convolved(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvolutionShape& shape,
                 int64_t groups = 1) {
  const std::array<int64_t, 2> stride = {shape.stride, shape.stride}, padding = {shape.padding, shape.padding},
                               dilation = {shape.dilation, shape.dilation};
  return at::conv2d(x, weight, bias, stride, padding, dilation, groups);
}

/// Same memory format as oneDNN's channels-last gradient.
Tensor empty_weight(int64_t out, int64_t in, int64_t kernel) {
  return at::empty({out, in, kernel, kernel}, at::TensorOptions(), at::MemoryFormat::ChannelsLast);
}

/// A convolution has at least one channel.
const Division& checked(const Division& channels) {
  TORCH_CHECK_VALUE(std::ranges::min(channels.counts()) > 0, "convolution: ", channels.total(), " channels on ",
                    channels.counts().size(), " ranks, wanted at least one on each");
  return channels;
}

Division channels_of(const Division& groups, int64_t channels) {
  TORCH_CHECK_VALUE(groups.total() > 0 && channels % groups.total() == 0, "convolution: ", channels, " channels in ",
                    groups.total(), " groups, wanted a multiple");
  return checked(groups.times(channels / groups.total()));
}

std::vector<Layer::Part> parts_of_outputs(const Division& out, bool has_bias) {
  std::vector<Layer::Part> parts = {{"weight", out.split(0)}};
  if (has_bias) parts.push_back({"bias", out.split(0)});
  return parts;
}

/// The parameters of a layer that has at most one part of each. `in`: channels of the whole that an output looks at.
void draw(const Layer& layer, int64_t in, int64_t kernel, uint64_t seed, const std::string& name) {
  const double bound = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(in * kernel * kernel, 1)));
  const auto parts = layer.parts();
  for (const auto& entry : layer.named_parameters(/*recurse=*/false)) {
    const auto part = std::ranges::find(parts, entry.key(), &Layer::Part::parameter);
    const auto split = part != parts.end() ? std::optional(part->split) : std::nullopt;
    detail::draw_uniform(entry.value(), split, bound, seed, name + "." + entry.key());
  }
}

}  // namespace

OutputConv2d::OutputConv2d(int64_t in, const Division& out, const ConvolutionShape& shape, bool gathers)
    : Layer("Conv2d"), in_(in), out_(checked(out)), shape_(shape), gathers_(gathers) {
  weight_ = register_parameter("weight", empty_weight(out.count(), in, shape.kernel));
  if (shape.bias) bias_ = register_parameter("bias", at::empty({out.count()}));
}

Tensor OutputConv2d::forward(const Tensor& x) const {
  const auto y = convolved(factor(copy_to_region(x, out_.group())), factor(weight_), factor(bias_), shape_);
  return gathers_ ? gather_from_region(y, 1, out_) : y;
}

void OutputConv2d::initialize(uint64_t seed, const std::string& name) { draw(*this, in_, shape_.kernel, seed, name); }

std::vector<Layer::Part> OutputConv2d::parts() const { return parts_of_outputs(out_, bias_.defined()); }

InputConv2d::InputConv2d(const Division& in, int64_t out, const ConvolutionShape& shape, bool scatters)
    : Layer("Conv2d"), in_(checked(in)), out_(out), shape_(shape), scatters_(scatters) {
  weight_ = register_parameter("weight", empty_weight(out, in.count(), shape.kernel));
  if (shape.bias) bias_ = register_parameter("bias", at::empty({out}));
}

Tensor InputConv2d::forward(const Tensor& x) const {
  const auto own = scatters_ ? scatter_to_region(x, 1, in_) : x;
  const auto y = reduce_from_region(convolved(factor(own), factor(weight_), {}, shape_), in_.group());
  return bias_.defined() ? y + bias_.view({1, out_, 1, 1}) : y;
}

void InputConv2d::initialize(uint64_t seed, const std::string& name) {
  draw(*this, in_.total(), shape_.kernel, seed, name);
}

std::vector<Layer::Part> InputConv2d::parts() const { return {{"weight", in_.split(1)}}; }

GroupConv2d::GroupConv2d(const Division& groups, const Options& options)
    : Layer("Conv2d"),
      groups_(groups),
      in_(channels_of(groups, options.in)),
      out_(channels_of(groups, options.out)),
      options_(options) {
  weight_ = register_parameter("weight", empty_weight(out_.count(), options.in / groups.total(), options.shape.kernel));
  if (options.shape.bias) bias_ = register_parameter("bias", at::empty({out_.count()}));
}

Tensor GroupConv2d::forward(const Tensor& x) {
  const auto all = options_.is_head ? to_model_parallel(x, in_) : x;
  const auto y = convolved(factor(all), factor(weight_), factor(bias_), options_.shape, groups_.count());
  return options_.is_tail ? to_data_parallel(y, out_) : y;
}

void GroupConv2d::initialize(uint64_t seed, const std::string& name) {
  draw(*this, options_.in / groups_.total(), options_.shape.kernel, seed, name);
}

std::vector<Layer::Part> GroupConv2d::parts() const { return parts_of_outputs(out_, bias_.defined()); }

}  // namespace tandem::layers
