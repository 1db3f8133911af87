#include "tandem/models/detail/fused_batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <bit>
#include <cmath>
#include <optional>
#include <vector>

#include "tandem/base/device_kernels.h"
#include "tandem/base/tangent.h"
#include "tandem/kernels/channel_kernels.h"

namespace tandem::models::detail {
namespace {

using memory::ChannelStatistics;
using Layout = memory::RowChunks;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <class Run>
void dispatch(const Tensor& values, const Run& run) {
  if (values.scalar_type() == at::kFloat) return run(float{});
  run(uint16_t{});
}

template <class T>
const T* read(const Tensor& values) {
  return values.defined() ? static_cast<const T*>(values.const_data_ptr()) : nullptr;
}

template <class T>
T* write(const Tensor& values) {
  return values.defined() ? static_cast<T*>(values.mutable_data_ptr()) : nullptr;
}

Tensor empty_channels(const Tensor& like) { return at::empty({like.size(1)}, at::kFloat); }

float number(float value) { return value; }
float number(uint16_t bfloat16) { return std::bit_cast<float>(static_cast<uint32_t>(bfloat16) << 16); }

template <class T>
memory::ChannelMoments moments_of(const Tensor& input) {
  const Layout layout(input);
  const int64_t channels = layout.channels;
  const T* values = read<T>(input);
  return memory::moments_of<float>(
      layout,
      [&](int64_t first, int64_t rows, float* sum, float* squares) {
        kernels::moments(values + first * channels, rows, channels, sum, squares);
      },
      [&](int64_t row, int64_t channel) { return number(values[row * channels + channel]); });
}

/// Of a batch in training, which moves the running statistics.
ChannelStatistics statistics_of(const Tensor& input, const BatchNormState& state) {
  ChannelStatistics statistics;
  dispatch(input, [&]<class T>(T) { statistics = moments_of<T>(input).statistics(state.ranks.get()); });
  move_running(state, statistics);
  return statistics;
}

/// Rows of a [3, C] tensor: scale and offset so that normalised = x * scale + offset, and the mean.
Tensor affine_of(const BatchNormState& state, const ChannelStatistics& statistics) {
  const auto channels = static_cast<int64_t>(statistics.mean.size());
  const Tensor rows = at::empty({3, channels}, at::kFloat);
  float* to = rows.mutable_data_ptr<float>();
  const float *weight = read<float>(state.weight), *bias = read<float>(state.bias);
  for (int64_t c = 0; c < channels; ++c) {
    const double scale = (weight ? weight[c] : 1) / std::sqrt(statistics.variance[c] + state.epsilon);
    to[c] = static_cast<float>(scale);
    to[channels + c] = static_cast<float>((bias ? bias[c] : 0) - statistics.mean[c] * scale);
    to[2 * channels + c] = static_cast<float>(statistics.mean[c]);
  }
  return rows;
}

Tensor transformed(const Tensor& input, const Tensor& affine, bool relu, const Tensor& residual) {
  Tensor output = at::empty_like(input);
  const Layout layout(input);
  const float* scale = affine.const_data_ptr<float>();
  dispatch(input, [&]<class T>(T) {
    layout.for_each_chunk([&](int64_t, int64_t row, int64_t rows) {
      const int64_t first = row * layout.channels;
      kernels::scale_shift(read<T>(input) + first, residual.defined() ? read<T>(residual) + first : nullptr, scale,
                           scale + layout.channels, relu, rows, layout.channels, write<T>(output) + first);
    });
  });
  return output;
}

/// The results of backward. `masked` is the residual's gradient if a rectifier follows the sum.
struct Gradients {
  Tensor input, weight, bias, masked;
};

/// The batch that the statistics are of, as the graph keeps it.
struct Batch : torch::CustomClassHolder {
  Batch(std::shared_ptr<memory::StatisticsExchange> of_ranks, double of_rows)
      : ranks(std::move(of_ranks)), rows(of_rows) {}

  std::shared_ptr<memory::StatisticsExchange> ranks;
  double rows;
};

/// Sums over the rows of each channel, of all chunks: of g, and of g (x - mean), both in [2, C].
std::vector<double> sums_of(const std::vector<float>& parts, int64_t channels) {
  std::vector<double> sums(2 * channels);
  for (size_t i = 0; i < parts.size(); ++i) sums[i % (2 * channels)] += parts[i];
  return sums;
}

/// Ranks exchange sums of g (x - mean) / deviation, whatever they compute with.
std::vector<double> sums_of_ranks(std::vector<double> own, memory::StatisticsExchange& ranks, const float* inverse) {
  const auto channels = own.size() / 2;
  for (size_t c = 0; c < channels; ++c) own[channels + c] *= inverse[c];
  own = memory::sum_over(&ranks, std::move(own));
  for (size_t c = 0; c < channels; ++c) own[channels + c] /= inverse[c];
  return own;
}

template <class T>
Gradients gradients_of(kernels::Backward<T> in, const Tensor& input, const Tensor& inverse_deviation,
                       const Batch& batch) {
  const Layout layout(input);
  const int64_t channels = layout.channels;
  Gradients made{at::empty_like(input), empty_channels(input), empty_channels(input), {}};
  if (in.mask == kernels::Mask::output) made.masked = at::empty_like(input);
  std::vector<float> parts(static_cast<size_t>(2 * layout.chunks * channels));
  const auto moved = [channels](kernels::Backward<T> part, int64_t row) {
    const int64_t first = row * channels;
    part.grad += first;
    part.x += first;
    if (part.y) part.y += first;
    return part;
  };
  T* masked = write<T>(made.masked);
  layout.for_each_chunk([&](int64_t i, int64_t row, int64_t rows) {
    float* sum = parts.data() + 2 * i * channels;
    kernels::gradient_moments(moved(in, row), rows, channels, sum, sum + channels,
                              masked ? masked + row * channels : nullptr);
  });

  // grad_x = scale (g - mean(g) - (x - mean) / variance * mean(g (x - mean)))   (Ioffe, Szegedy 2015, section 3)
  auto sums = sums_of(parts, channels);
  std::vector<float> slope(channels), shift(channels);
  float *to_weight = made.weight.mutable_data_ptr<float>(), *to_bias = made.bias.mutable_data_ptr<float>();
  const float* inverse = inverse_deviation.const_data_ptr<float>();
  for (int64_t c = 0; c < channels; ++c) {
    to_weight[c] = static_cast<float>(sums[channels + c] * inverse[c]);
    to_bias[c] = static_cast<float>(sums[c]);
  }
  if (batch.ranks) sums = sums_of_ranks(std::move(sums), *batch.ranks, inverse);
  for (int64_t c = 0; c < channels; ++c) {
    slope[c] = static_cast<float>(-in.scale[c] * sums[channels + c] / batch.rows * inverse[c] * inverse[c]);
    shift[c] = static_cast<float>(-in.scale[c] * sums[c] / batch.rows);
  }
  if (masked) {
    in.grad = masked;
    in.mask = kernels::Mask::none;
  }
  layout.for_each_chunk([&](int64_t, int64_t row, int64_t rows) {
    kernels::gradient_apply(moved(in, row), slope.data(), shift.data(), rows, channels,
                            write<T>(made.input) + row * channels);
  });
  return made;
}

/// What FusedBatchNorm saves for backward.
struct Saved {
  Tensor input, affine, inverse_deviation, output, weight;  // output: of a rectifier that follows a residual

  explicit Saved(const variable_list& list)
      : input(list[0]), affine(list[1]), inverse_deviation(list[2]), output(list[3]), weight(list[4]) {}
};

/// The gradients of input, weight, bias and residual by operations that have gradients of their own.
variable_list gradients_with_graph(const Saved& saved, Tensor gradient, bool relu, bool residual, bool has_bias) {
  if (relu) {
    std::vector<int64_t> sizes(saved.input.dim(), 1);
    sizes[1] = saved.input.size(1);
    const auto rectified =
        residual ? saved.output : saved.input.detach() * saved.affine[0].view(sizes) + saved.affine[1].view(sizes);
    gradient = gradient * (rectified > 0);
  }
  const bool is_affine = saved.weight.defined();
  auto [input, weight, bias] = at::native_batch_norm_backward(gradient, saved.input, saved.weight, {}, {},
                                                              saved.affine[2], saved.inverse_deviation, /*train=*/true,
                                                              /*eps=*/0, {true, is_affine, has_bias});
  return {input, weight, bias, residual ? gradient : Tensor(), {}, {}, {}, {}};
}

class FusedBatchNorm : public torch::autograd::Function<FusedBatchNorm> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& input, const std::optional<Tensor>& weight,
                        const std::optional<Tensor>& bias, const std::optional<Tensor>& addend, const Tensor& affine,
                        const Tensor& inverse_deviation, bool relu, const c10::intrusive_ptr<Batch>& batch) {
    const Tensor residual = addend.value_or(Tensor());
    const Tensor output = transformed(input, affine, relu, residual);
    context->save_for_backward(
        {input, affine, inverse_deviation, relu && residual.defined() ? output : Tensor(), weight.value_or(Tensor())});
    context->saved_data["relu"] = relu;
    context->saved_data["bias"] = bias.has_value();
    context->saved_data["residual"] = residual.defined();
    context->saved_data["batch"] = c10::IValue::make_capsule(batch);
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Saved saved(context->get_saved_variables());
    const Tensor& input = saved.input;
    const bool relu = context->saved_data["relu"].toBool(), residual = context->saved_data["residual"].toBool();
    const bool has_bias = context->saved_data["bias"].toBool();
    const auto capsule = context->saved_data["batch"].toCapsule();
    const auto& batch = static_cast<const Batch&>(*capsule);
    if (at::GradMode::is_enabled()) {
      TORCH_CHECK_NOT_IMPLEMENTED(!batch.ranks,
                                  "batch normalisation over ranks: its gradient has none of its own: for ",
                                  "second derivatives normalise the images of each rank");
      return gradients_with_graph(saved, gradients[0], relu, residual, has_bias);
    }
    const Tensor gradient =
        input.dim() == 2 ? gradients[0].contiguous() : gradients[0].contiguous(at::MemoryFormat::ChannelsLast);
    const float* scale = saved.affine.const_data_ptr<float>();
    Gradients made;
    dispatch(input, [&]<class T>(T) {
      const int64_t channels = input.size(1);
      made = gradients_of<T>(
          {!relu      ? kernels::Mask::none
           : residual ? kernels::Mask::output
                      : kernels::Mask::input,
           read<T>(gradient), read<T>(input), read<T>(saved.output), scale, scale + channels, scale + 2 * channels},
          input, saved.inverse_deviation, batch);
    });
    if (!saved.weight.defined()) made.weight = Tensor();
    if (!has_bias) made.bias = Tensor();
    if (!residual) return {made.input, made.weight, made.bias, {}, {}, {}, {}, {}};
    return {made.input, made.weight, made.bias, relu ? made.masked : gradient, {}, {}, {}, {}};
  }
};

bool is_channels_last(const Tensor& values) {
  return values.dim() == 2 ? values.is_contiguous() : values.is_contiguous(at::MemoryFormat::ChannelsLast);
}

}  // namespace

bool can_fuse(const Tensor& input, const Tensor& residual, const BatchNormState& state) {
  const auto type = input.scalar_type();
  return have_kernels(Kernels::batch_norm, input) && (input.dim() == 2 || input.dim() == 4) && input.numel() > 0 &&
         input.size(1) % kernels::kLanes == 0 && is_channels_last(input) && !TangentScope::is_open() &&
         (!state.weight.defined() || state.weight.scalar_type() == at::kFloat) &&
         (!residual.defined() ||
          (residual.scalar_type() == type && residual.sizes() == input.sizes() && is_channels_last(residual)));
}

Tensor fused_batch_norm(const Tensor& input, const BatchNormState& state, bool training, bool relu,
                        const Tensor& residual) {
  Tensor affine, inverse_deviation = empty_channels(input);
  c10::intrusive_ptr<Batch> batch;
  {
    const at::NoGradGuard no_grad;
    const auto statistics = training ? statistics_of(input.detach(), state) : memory::running_statistics(state);
    affine = affine_of(state, statistics);
    float* inverse = inverse_deviation.mutable_data_ptr<float>();
    for (const double variance : statistics.variance) {
      *inverse++ = static_cast<float>(1.0 / std::sqrt(variance + state.epsilon));
    }
    if (!training) return transformed(input, affine, relu, residual);
    batch = c10::make_intrusive<Batch>(state.ranks, statistics.rows);
  }
  const auto given = [](const Tensor& tensor) { return tensor.defined() ? std::optional(tensor) : std::nullopt; };
  return FusedBatchNorm::apply(input, given(state.weight), given(state.bias), given(residual), affine,
                               inverse_deviation, relu, batch);
}

}  // namespace tandem::models::detail
