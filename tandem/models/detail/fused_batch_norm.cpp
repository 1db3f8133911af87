#include "tandem/models/detail/fused_batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <optional>
#include <vector>

#include "tandem/kernels/channel_kernels.h"

namespace tandem::models::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kValuesPerChunk = 32768;  // small enough for a chunk of rows to stay in a core's cache

/// The tensor as [rows, channels], cut into chunks that do not depend on the number of threads.
struct Layout {
  explicit Layout(const Tensor& values)
      : channels(values.size(1)),
        rows(values.numel() / channels),
        chunk(std::max<int64_t>(kernels::kLanes, kValuesPerChunk / channels)),
        chunks((rows + chunk - 1) / chunk) {}

  /// Calls run(index, first value, rows) for every chunk, on all threads.
  template <class Run>
  void for_each_chunk(const Run& run) const {
    at::parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) run(i, i * chunk * channels, std::min(chunk, rows - i * chunk));
    });
  }

  int64_t channels, rows, chunk, chunks;
};

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

/// Mean and population variance of each channel: the sums of chunks, combined in double in the chunks' order (Chan,
/// Golub, LeVeque 1983, equation 2.1).
struct Statistics {
  std::vector<double> mean, variance;
};

template <class T>
Statistics statistics_of(const Tensor& input) {
  const Layout layout(input);
  const int64_t channels = layout.channels;
  std::vector<float> sums(static_cast<size_t>(2 * layout.chunks * channels));
  const T* values = read<T>(input);
  layout.for_each_chunk([&](int64_t i, int64_t first, int64_t rows) {
    float* sum = sums.data() + 2 * i * channels;
    kernels::moments(values + first, rows, channels, sum, sum + channels);
  });
  // Each chunk subtracted its own first row: add it back.
  const auto first_rows = input.dim() == 2 ? input : input.permute({0, 2, 3, 1}).reshape({layout.rows, channels});
  const Tensor origins = first_rows.slice(0, 0, layout.rows, layout.chunk).to(at::kFloat).contiguous();
  const float* origin = origins.const_data_ptr<float>();
  Statistics result{std::vector<double>(channels), std::vector<double>(channels)};
  double count = 0;
  for (int64_t i = 0; i < layout.chunks; ++i) {
    const double rows = static_cast<double>(std::min(layout.chunk, layout.rows - i * layout.chunk));
    for (int64_t c = 0; c < channels; ++c) {
      const double sum = sums[2 * i * channels + c], square = sums[(2 * i + 1) * channels + c];
      const double difference = origin[i * channels + c] + sum / rows - result.mean[c];
      result.variance[c] +=
          std::max(0.0, square - sum * sum / rows) + difference * difference * count * rows / (count + rows);
      result.mean[c] += difference * rows / (count + rows);
    }
    count += rows;
  }
  for (auto& variance : result.variance) variance /= count;
  return result;
}

Statistics running_statistics(const BatchNormState& state) {
  const auto as_vector = [](const Tensor& values) {
    const float* from = values.const_data_ptr<float>();
    return std::vector<double>(from, from + values.numel());
  };
  return {as_vector(state.running_mean), as_vector(state.running_var)};
}

void move_running(const BatchNormState& state, const Statistics& statistics, int64_t rows) {
  float* mean = state.running_mean.mutable_data_ptr<float>();
  float* variance = state.running_var.mutable_data_ptr<float>();
  const double unbiased = static_cast<double>(rows) / static_cast<double>(rows - 1);
  for (size_t c = 0; c < statistics.mean.size(); ++c) {
    mean[c] += static_cast<float>(state.momentum * (statistics.mean[c] - mean[c]));
    variance[c] += static_cast<float>(state.momentum * (statistics.variance[c] * unbiased - variance[c]));
  }
}

/// Rows of a [3, C] tensor: scale and offset so that normalised = x * scale + offset, and the mean.
Tensor affine_of(const BatchNormState& state, const Statistics& statistics) {
  const auto channels = static_cast<int64_t>(statistics.mean.size());
  const Tensor rows = at::empty({3, channels}, at::kFloat);
  float* to = rows.mutable_data_ptr<float>();
  const float *weight = state.weight.const_data_ptr<float>(), *bias = state.bias.const_data_ptr<float>();
  for (int64_t c = 0; c < channels; ++c) {
    const double scale = weight[c] / std::sqrt(statistics.variance[c] + state.epsilon);
    to[c] = static_cast<float>(scale);
    to[channels + c] = static_cast<float>(bias[c] - statistics.mean[c] * scale);
    to[2 * channels + c] = static_cast<float>(statistics.mean[c]);
  }
  return rows;
}

Tensor transformed(const Tensor& input, const Tensor& affine, bool relu, const Tensor& residual) {
  Tensor output = at::empty_like(input);
  const Layout layout(input);
  const float* scale = affine.const_data_ptr<float>();
  dispatch(input, [&]<class T>(T) {
    layout.for_each_chunk([&](int64_t, int64_t first, int64_t rows) {
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

template <class T>
Gradients gradients_of(kernels::Backward<T> in, const Tensor& input, const Tensor& inverse_deviation) {
  const Layout layout(input);
  const int64_t channels = layout.channels;
  Gradients made{at::empty_like(input), empty_channels(input), empty_channels(input), {}};
  if (in.mask == kernels::Mask::output) made.masked = at::empty_like(input);
  std::vector<float> sums(static_cast<size_t>(2 * layout.chunks * channels));
  const auto moved = [](kernels::Backward<T> part, int64_t first) {
    part.grad += first;
    part.x += first;
    if (part.y) part.y += first;
    return part;
  };
  T* masked = write<T>(made.masked);
  layout.for_each_chunk([&](int64_t i, int64_t first, int64_t rows) {
    float* sum = sums.data() + 2 * i * channels;
    kernels::gradient_moments(moved(in, first), rows, channels, sum, sum + channels, masked ? masked + first : nullptr);
  });

  // grad_x = scale (g - mean(g) - (x - mean) / variance * mean(g (x - mean)))   (Ioffe, Szegedy 2015, section 3)
  std::vector<float> slope(channels), shift(channels);
  float *to_weight = made.weight.mutable_data_ptr<float>(), *to_bias = made.bias.mutable_data_ptr<float>();
  const float* inverse = inverse_deviation.const_data_ptr<float>();
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0, product = 0;
    for (int64_t i = 0; i < layout.chunks; ++i) {
      sum += sums[2 * i * channels + c];
      product += sums[(2 * i + 1) * channels + c];
    }
    const auto rows = static_cast<double>(layout.rows);
    to_weight[c] = static_cast<float>(product * inverse[c]);
    to_bias[c] = static_cast<float>(sum);
    slope[c] = static_cast<float>(-in.scale[c] * product / rows * inverse[c] * inverse[c]);
    shift[c] = static_cast<float>(-in.scale[c] * sum / rows);
  }
  if (masked) {
    in.grad = masked;
    in.mask = kernels::Mask::none;
  }
  layout.for_each_chunk([&](int64_t, int64_t first, int64_t rows) {
    kernels::gradient_apply(moved(in, first), slope.data(), shift.data(), rows, channels, write<T>(made.input) + first);
  });
  return made;
}

class FusedBatchNorm : public torch::autograd::Function<FusedBatchNorm> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& weight, const Tensor& bias,
                        const std::optional<Tensor>& addend, const Tensor& affine, const Tensor& inverse_deviation,
                        bool relu) {
    const Tensor residual = addend.value_or(Tensor());
    const Tensor output = transformed(input, affine, relu, residual);
    context->save_for_backward({input, affine, inverse_deviation, relu && residual.defined() ? output : Tensor()});
    context->saved_data["relu"] = relu;
    context->saved_data["residual"] = residual.defined();
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(),
                                "batch normalisation: its gradient has none of its own in ",
                                "float32: for second derivatives convert the model to float64");
    const auto saved = context->get_saved_variables();
    const Tensor &input = saved[0], &output = saved[3];
    const bool relu = context->saved_data["relu"].toBool(), residual = context->saved_data["residual"].toBool();
    const Tensor gradient =
        input.dim() == 2 ? gradients[0].contiguous() : gradients[0].contiguous(at::MemoryFormat::ChannelsLast);
    const float* scale = saved[1].const_data_ptr<float>();
    Gradients made;
    dispatch(input, [&]<class T>(T) {
      const int64_t channels = input.size(1);
      made = gradients_of<T>(
          {!relu      ? kernels::Mask::none
           : residual ? kernels::Mask::output
                      : kernels::Mask::input,
           read<T>(gradient), read<T>(input), read<T>(output), scale, scale + channels, scale + 2 * channels},
          input, saved[2]);
    });
    if (!residual) return {made.input, made.weight, made.bias, {}, {}, {}, {}};
    return {made.input, made.weight, made.bias, relu ? made.masked : gradient, {}, {}, {}};
  }
};

bool is_channels_last(const Tensor& values) {
  return values.dim() == 2 ? values.is_contiguous() : values.is_contiguous(at::MemoryFormat::ChannelsLast);
}

}  // namespace

bool can_fuse(const Tensor& input, const Tensor& residual, const BatchNormState& state) {
  const auto type = input.scalar_type();
  return input.device().is_cpu() && (type == at::kFloat || type == at::kBFloat16) &&
         (input.dim() == 2 || input.dim() == 4) && input.numel() > 0 && input.size(1) % kernels::kLanes == 0 &&
         is_channels_last(input) && state.weight.scalar_type() == at::kFloat &&
         (!residual.defined() ||
          (residual.scalar_type() == type && residual.sizes() == input.sizes() && is_channels_last(residual)));
}

Tensor fused_batch_norm(const Tensor& input, const BatchNormState& state, bool training, bool relu,
                        const Tensor& residual) {
  Tensor affine, inverse_deviation = empty_channels(input);
  {
    const at::NoGradGuard no_grad;
    Statistics statistics;
    if (training) {
      dispatch(input, [&]<class T>(T) { statistics = statistics_of<T>(input.detach()); });
      if (state.momentum != 0) move_running(state, statistics, input.numel() / input.size(1));
    } else {
      statistics = running_statistics(state);
    }
    affine = affine_of(state, statistics);
    float* inverse = inverse_deviation.mutable_data_ptr<float>();
    for (const double variance : statistics.variance) {
      *inverse++ = static_cast<float>(1.0 / std::sqrt(variance + state.epsilon));
    }
    if (!training) return transformed(input, affine, relu, residual);
  }
  const auto addend = residual.defined() ? std::optional(residual) : std::nullopt;
  return FusedBatchNorm::apply(input, state.weight, state.bias, addend, affine, inverse_deviation, relu);
}

}  // namespace tandem::models::detail
