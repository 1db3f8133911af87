#include "tandem/models/cells/cell_layers.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "tandem/base/context.h"
#include "tandem/base/rng.h"
#include "tandem/layers/sample_draws.h"
#include "tandem/models/network/layers.h"

namespace tandem::models {
namespace {

std::shared_ptr<Normalization> make_norm(const CellLayerOptions& options, int64_t channels) {
  return make_normalization(options.norm, channels, memory::activation_of("relu"), options.is_affine);
}

/// Steps that are children of this layer, or of its child `op`, by their numbers. A ReLU takes a number too.
class Steps : public CellLayer {
 public:
  Steps(std::string name, bool have_parent, const CellLayerOptions& options)
      : CellLayer(std::move(name)), options_(options) {
    parent_ = have_parent ? register_module("op", std::make_shared<torch::nn::Module>("Steps")).get() : this;
  }

  Steps& rectify() {
    ++count_;
    if (steps_.empty()) {
      takes_rectified_ = true;
    } else {
      norms_.back().second = Then::activation;
    }
    return *this;
  }

  Steps& lay_out() {
    steps_.emplace_back([](const Tensor& x) { return laid_out(x); });
    return *this;
  }

  Steps& convolve(Conv2d::Options options) {
    options.draw = Draw::fan_in;
    out_ = options.out;
    const auto conv = parent_->register_module(std::to_string(count_++), std::make_shared<Conv2d>(options));
    steps_.emplace_back([conv](const Tensor& x) { return conv->forward(x); });
    return *this;
  }

  Steps& normalise() {
    const auto norm = parent_->register_module(std::to_string(count_++), make_norm(options_, out_));
    norms_.emplace_back(norm, Then::nothing);
    steps_.emplace_back(
        [this, at = norms_.size() - 1](const Tensor& x) { return norms_[at].first->forward(x, norms_[at].second); });
    return *this;
  }

  using CellLayer::forward;
  Tensor forward(const CellValue& x) const override {
    Tensor value = takes_rectified_ ? x.rectified() : x.values();
    for (const auto& step : steps_) value = step(value);
    return value;
  }

  /// The last step is a norm.
  Tensor scaled(const CellValue& x, const Tensor& scale) const override {
    Tensor value = takes_rectified_ ? x.rectified() : x.values();
    for (size_t i = 0; i + 1 < steps_.size(); ++i) value = steps_[i](value);
    return norms_.back().first->scaled(value, scale);
  }

 private:
  CellLayerOptions options_;
  bool takes_rectified_ = false;
  torch::nn::Module* parent_;
  int64_t out_ = 0;
  int count_ = 0;
  std::vector<std::pair<std::shared_ptr<Normalization>, Then>> norms_;
  std::vector<std::function<Tensor(const Tensor&)>> steps_;
};

class Function : public CellLayer {
 public:
  Function(std::string name, std::function<Tensor(const Tensor&)> function, bool is_identity = false)
      : CellLayer(std::move(name)), function_(std::move(function)), is_identity_(is_identity) {}

  using CellLayer::forward;
  Tensor forward(const CellValue& x) const override { return function_(x.values()); }
  bool is_identity() const override { return is_identity_; }

 private:
  std::function<Tensor(const Tensor&)> function_;
  bool is_identity_;
};

class Pool : public CellLayer {
 public:
  Pool(Tensor (*pool)(const Tensor& x, int64_t stride), int64_t stride)
      : CellLayer("Pool"), pool_(pool), stride_(stride) {}

  using CellLayer::forward;
  Tensor forward(const CellValue& x) const override { return x.pooled(pool_, stride_); }

 private:
  Tensor (*pool_)(const Tensor& x, int64_t stride);
  int64_t stride_;
};

/// An operation that a norm follows.
class Normalised : public CellLayer {
 public:
  Normalised(std::shared_ptr<CellLayer> layer, const CellLayerOptions& options) : CellLayer("Sequential") {
    layer_ = register_module("0", std::move(layer));
    norm_ = register_module("1", make_norm(options, options.channels));
  }

  using CellLayer::forward;
  Tensor forward(const CellValue& x) const override { return norm_->forward(layer_->forward(x)); }
  Tensor scaled(const CellValue& x, const Tensor& scale) const override {
    return norm_->scaled(layer_->forward(x), scale);
  }

 private:
  std::shared_ptr<CellLayer> layer_;
  std::shared_ptr<Normalization> norm_;
};

class Halving : public CellLayer {
 public:
  Halving(int64_t in, const CellLayerOptions& options) : CellLayer("FactorizedReduce") {
    const int64_t out = options.channels, first = out / 2;
    const auto conv = [&](const char* name, int64_t channels) {
      const Conv2d::Options shape{.in = in, .out = channels, .kernel = 1, .stride = 2, .draw = Draw::fan_in};
      return register_module(name, std::make_shared<Conv2d>(shape));
    };
    conv_1_ = conv("conv_1", first);
    conv_2_ = conv("conv_2", out - first);
    bn_ = register_module("bn", make_norm(options, out));
  }

  using CellLayer::forward;
  Tensor forward(const CellValue& x) const override { return bn_->forward(halved(x)); }
  Tensor scaled(const CellValue& x, const Tensor& scale) const override { return bn_->scaled(halved(x), scale); }

 private:
  Tensor halved(const CellValue& x) const {
    const auto& positive = x.rectified();
    TORCH_CHECK_VALUE(positive.size(2) % 2 == 0 && positive.size(3) % 2 == 0, "cell: an image of ", positive.size(2),
                      " x ", positive.size(3), " is halved, wanted even sides");
    const auto shifted = positive.slice(2, 1).slice(3, 1);
    return at::cat({conv_1_->forward(positive), conv_2_->forward(shifted)}, 1);
  }

  std::shared_ptr<Conv2d> conv_1_, conv_2_;
  std::shared_ptr<Normalization> bn_;
};

using Made = std::shared_ptr<CellLayer>;

/// ReLU, depthwise convolution, 1 x 1 convolution, norm.
void add_depthwise(Steps& steps, int64_t channels, int64_t kernel, int64_t stride, int64_t dilation) {
  steps.rectify()
      .convolve({.in = channels,
                 .out = channels,
                 .kernel = kernel,
                 .stride = stride,
                 .padding = dilation * (kernel / 2),
                 .dilation = dilation,
                 .groups = channels})
      .convolve({.in = channels, .out = channels, .kernel = 1})
      .normalise();
}

template <int64_t kernel>
Made separable(const CellLayerOptions& options) {
  auto steps = std::make_shared<Steps>("SepConv", true, options);
  add_depthwise(*steps, options.channels, kernel, options.stride, 1);
  add_depthwise(*steps, options.channels, kernel, 1, 1);
  return steps;
}

template <int64_t kernel>
Made dilated(const CellLayerOptions& options) {
  auto steps = std::make_shared<Steps>("DilConv", true, options);
  add_depthwise(*steps, options.channels, kernel, options.stride, 2);
  return steps;
}

template <int64_t kernel>
Made plain(const CellLayerOptions& options) {
  return make_convolution(options.channels, kernel, options);
}

Made crossed(const CellLayerOptions& options) {
  auto steps = std::make_shared<Steps>("CrossedConv", false, options);
  const int64_t channels = options.channels, stride = options.stride;
  steps->rectify()
      .convolve({.in = channels, .out = channels, .kernel = {1, 7}, .stride = {1, stride}, .padding = {0, 3}})
      .convolve({.in = channels, .out = channels, .kernel = {7, 1}, .stride = {stride, 1}, .padding = {3, 0}})
      .normalise();
  return steps;
}

Tensor max_pooled(const Tensor& x, int64_t stride) { return at::max_pool2d(x, 3, stride, 1); }

Tensor average_pooled(const Tensor& x, int64_t stride) {
  return at::avg_pool2d(x, 3, stride, 1, /*ceil_mode=*/false, /*count_include_pad=*/false);
}

template <Tensor (*kPool)(const Tensor& x, int64_t stride)>
Made pool(const CellLayerOptions& options) {
  auto layer = std::make_shared<Pool>(kPool, options.stride);
  if (options.normalises_pools) return std::make_shared<Normalised>(std::move(layer), options);
  return layer;
}

Made skip(const CellLayerOptions& options) {
  if (options.stride > 1) return make_halving(options.channels, options);
  return std::make_shared<Function>(
      "Identity", [](const Tensor& x) { return x; }, true);
}

/// Every second pixel of every second row, with stride 2.
Tensor strided(const Tensor& x, int64_t stride) {
  return stride == 1 ? x : x.slice(2, 0, std::nullopt, stride).slice(3, 0, std::nullopt, stride);
}

Made zeros(const CellLayerOptions& options) {
  return std::make_shared<Function>("Zero",
                                    [stride = options.stride](const Tensor& x) { return strided(x, stride) * 0; });
}

/// Normal numbers, counted as those of layers::Dropout: they depend on seed, step, sample, layer and place alone.
class NoiseSource : public Layer {
 public:
  NoiseSource() : Layer("NoiseSource") {}

  void initialize(uint64_t /*seed*/, const std::string& name) override { stream_ = stream_of(name); }

  Tensor like(const Tensor& x) const {
    const int64_t samples = x.size(0), values = samples > 0 ? x.numel() / samples : 0;
    const auto noise = layers::drawn_by_sample(samples, {.own = values}, stream_,
                                               [](CounterRng& random) { return static_cast<float>(random.normal()); });
    return noise.view(x.sizes()).to(x.options().requires_grad(false));
  }

 private:
  uint64_t stream_ = 0;
};

class Noise : public CellLayer {
 public:
  explicit Noise(const CellLayerOptions& options) : CellLayer("NoiseOp"), stride_(options.stride) {
    source_ = register_module("source", std::make_shared<NoiseSource>());
  }

  using CellLayer::forward;
  Tensor forward(const CellValue& x) const override { return source_->like(strided(x.values(), stride_)); }

 private:
  int64_t stride_;
  std::shared_ptr<NoiseSource> source_;
};

Made noise(const CellLayerOptions& options) { return std::make_shared<Noise>(options); }

struct LayerEntry {
  std::string_view name;
  Made (*make)(const CellLayerOptions& options);
  bool reads_input = true;
};

constexpr std::array kLayers = {LayerEntry{"none", zeros},
                                LayerEntry{"max_pool_3x3", pool<max_pooled>},
                                LayerEntry{"avg_pool_3x3", pool<average_pooled>},
                                LayerEntry{"skip_connect", skip},
                                LayerEntry{"sep_conv_3x3", separable<3>},
                                LayerEntry{"sep_conv_5x5", separable<5>},
                                LayerEntry{"dil_conv_3x3", dilated<3>},
                                LayerEntry{"dil_conv_5x5", dilated<5>},
                                LayerEntry{"sep_conv_7x7", separable<7>},
                                LayerEntry{"conv_7x1_1x7", crossed},
                                LayerEntry{"nor_conv_1x1", plain<1>},
                                LayerEntry{"nor_conv_3x3", plain<3>},
                                LayerEntry{"noise", noise, false}};

const LayerEntry& layer_of(std::string_view operation) {
  const auto* const layer = std::ranges::find(kLayers, operation, &LayerEntry::name);
  TORCH_CHECK_VALUE(layer != kLayers.end(), "cell: operation is ", std::string(operation), ", wanted one of DARTS");
  return *layer;
}

}  // namespace

const CellValue& CellValue::first_channels(int64_t channels) const {
  if (!first_) first_ = std::make_shared<const CellValue>(values_.narrow(1, 0, channels));
  TORCH_INTERNAL_ASSERT(first_->values().size(1) == channels);
  return *first_;
}

Tensor CellValue::pooled(Tensor (*pool)(const Tensor& x, int64_t stride), int64_t stride) const {
  for (const auto& known : pooled_) {
    if (known.pool == pool && known.stride == stride) return known.values;
  }
  pooled_.push_back({pool, stride, pool(values_, stride)});
  return pooled_.back().values;
}

std::span<const std::string_view> operation_names() {
  static constexpr auto names = [] {
    std::array<std::string_view, kLayers.size()> all;
    std::ranges::transform(kLayers, all.begin(), &LayerEntry::name);
    return all;
  }();
  return names;
}

std::shared_ptr<CellLayer> make_operation(std::string_view name, const CellLayerOptions& options) {
  return layer_of(name).make(options);
}

bool reads_input(std::string_view operation) { return layer_of(operation).reads_input; }

std::shared_ptr<CellLayer> make_convolution(int64_t in, int64_t kernel, const CellLayerOptions& options) {
  auto steps = std::make_shared<Steps>("ReLUConvBN", true, options);
  steps->rectify()
      .convolve({.in = in, .out = options.channels, .kernel = kernel, .stride = options.stride, .padding = kernel / 2})
      .normalise();
  return steps;
}

std::shared_ptr<CellLayer> make_projection(int64_t in, const CellLayerOptions& options) {
  return make_convolution(in, 1, options);
}

std::shared_ptr<CellLayer> make_halving(int64_t in, const CellLayerOptions& options) {
  return std::make_shared<Halving>(in, options);
}

std::shared_ptr<CellLayer> make_stem(int64_t in, const CellLayerOptions& options) {
  auto steps = std::make_shared<Steps>("Sequential", false, options);
  steps->lay_out().convolve({.in = in, .out = options.channels, .kernel = 3, .padding = 1}).normalise();
  return steps;
}

}  // namespace tandem::models
