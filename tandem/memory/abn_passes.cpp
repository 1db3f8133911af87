#include "tandem/memory/abn_passes.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <array>
#include <cmath>
#include <vector>

#include "tandem/base/device_kernels.h"
#include "tandem/memory/detail/abn_on_gpu.h"
#include "tandem/memory/detail/sole_owner.h"
#include "tandem/memory/detail/stored_type.h"

namespace tandem::memory {
namespace {

using kernels::Invertible;

template <class S>
const S* read(const Tensor& values) {
  return static_cast<const S*>(values.const_data_ptr());
}
template <class S>
S* write(const Tensor& values) {
  return static_cast<S*>(values.mutable_data_ptr());
}

double number(double value) { return value; }
double number(uint16_t bits) { return static_cast<float>(c10::BFloat16(bits, c10::BFloat16::from_bits())); }

template <class S>
ChannelMoments moments_of(const Tensor& x) {
  const RowChunks layout(x);
  const int64_t channels = layout.channels;
  const S* values = read<S>(x);
  return moments_of<double>(
      layout,
      [&](int64_t first, int64_t rows, double* sum, double* squares) {
        kernels::abn_moments(values + first * channels, rows, channels, sum, squares);
      },
      [&](int64_t row, int64_t channel) { return number(values[row * channels + channel]); });
}

double bounded(double weight) { return std::copysign(std::max(std::abs(weight), kLeastWeight), weight); }

/// Rows of a float64 [3, C] tensor: g, bias, 1 / sqrt(variance + epsilon).
template <class T>
Tensor numbers_of(const AbnState& state, const ChannelStatistics& statistics) {
  const auto channels = static_cast<int64_t>(statistics.mean.size());
  Tensor rows = at::empty({3, channels}, at::kDouble);
  double* to = rows.mutable_data_ptr<double>();
  const T *weight = state.weight.const_data_ptr<T>(), *bias = state.bias.const_data_ptr<T>();
  for (int64_t c = 0; c < channels; ++c) {
    to[c] = bounded(weight[c]);
    to[channels + c] = bias[c];
    to[2 * channels + c] = 1 / std::sqrt(statistics.variance[c] + state.epsilon);
  }
  return rows;
}

template <class S, class T = kernels::AbnNumber<S>>
void normalize(const Tensor& x, Invertible activation, const ChannelStatistics& statistics, const Tensor& numbers,
               const Tensor& sides) {
  const RowChunks layout(x);
  const int64_t channels = layout.channels;
  const double* of = numbers.const_data_ptr<double>();
  std::vector<T> scale(channels), offset(channels);
  for (int64_t c = 0; c < channels; ++c) {
    const double factor = of[c] * of[2 * channels + c];
    scale[c] = static_cast<T>(factor);
    offset[c] = static_cast<T>(of[channels + c] - statistics.mean[c] * factor);
  }
  S* values = write<S>(x);
  uint8_t* bits = sides.defined() ? sides.mutable_data_ptr<uint8_t>() : nullptr;
  layout.for_each_chunk([&](int64_t, int64_t first, int64_t rows) {
    kernels::abn_forward({activation, static_cast<T>(kLeakySlope), scale.data(), offset.data()}, rows, channels,
                         values + first * channels, bits ? bits + first * kernels::side_bytes(channels) : nullptr);
  });
}

/// y and dy keep their digits only in a type that is as wide as the arithmetic.
template <class S>
constexpr bool kUnfolds = std::is_same_v<S, kernels::AbnNumber<S>>;

/// Sums over the rows of each channel: of dy, and of dy (y - centre), both in [2, C]. `unfolded`: where to write y and
/// dy, or nullptrs.
template <class S>
std::vector<double> sums_of(const kernels::AbnBackward<S>& in, const RowChunks& layout, bool wide,
                            const kernels::AbnUnfolded<S>& unfolded) {
  const int64_t channels = layout.channels;
  std::vector<double> parts(static_cast<size_t>(2 * layout.chunks * channels)), sums(2 * channels);
  layout.for_each_chunk([&](int64_t i, int64_t first, int64_t rows) {
    const auto from = in.from_row(first, channels);
    double *sum = parts.data() + 2 * i * channels, *product = sum + channels;
    if constexpr (kUnfolds<S>) {
      const int64_t at = first * channels;
      const kernels::AbnUnfolded<S> to{unfolded.y + at, unfolded.dy + at};
      if (unfolded.y) return kernels::abn_unfold_swish(from, wide, rows, channels, sum, product, to);
    }
    kernels::abn_gradient_sums(from, wide, rows, channels, sum, product);
  });
  for (size_t i = 0; i < parts.size(); ++i) sums[i % (2 * channels)] += parts[i];
  return sums;
}

/// dx = g r (dy - mean(dy) - xh mean(dy xh)), r = 1 / deviation, xh = (y - bias) / g; by the running statistics
/// dx = g r dy. Form two has y for y - bias, and puts the rest into the shift. Where z is free, the sums' pass writes
/// the inverse of swish over it.
template <class S, class T = kernels::AbnNumber<S>>
AbnGradients gradients_of(const AbnKept& kept, Tensor gradient, const Tensor& z) {
  const RowChunks layout(z);
  const int64_t channels = layout.channels;
  const double *g = kept.numbers.const_data_ptr<double>(), *bias = g + channels, *inverse = bias + channels;
  std::vector<T> centre(channels), factor(channels), slope(channels), shift(channels);
  const bool centred = kept.form == AbnForm::one;
  if (centred) std::copy(bias, bias + channels, centre.begin());

  const auto type = c10::CppTypeToScalarType<T>::value;
  AbnGradients made{detail::result_over(gradient, z), at::empty({channels}, type), at::empty({channels}, type)};
  S* to = write<S>(made.input);
  const bool unfolds = kUnfolds<S> && kept.activation == Invertible::swish && detail::is_sole_owner(z);
  kernels::AbnBackward<S> in{kept.activation, static_cast<T>(kLeakySlope), read<S>(z), read<S>(gradient), nullptr,
                             centre.data()};
  if (kept.sides.defined()) in.sides = kept.sides.const_data_ptr<uint8_t>();
  const kernels::AbnUnfolded<S> unfolded{unfolds ? write<S>(z) : nullptr, to};
  const auto sums = sums_of(in, layout, !centred, unfolded);
  if (unfolds) in = {Invertible::identity, T(1), unfolded.y, unfolded.dy, nullptr, centre.data()};
  std::vector<double> terms(sums);  // of the gradients of bias and weight
  for (int64_t c = 0; c < channels; ++c) {
    const double sum = sums[c], product = sums[channels + c];
    const double by_weight = (centred ? product : product - bias[c] * sum) / g[c];
    made.weight.mutable_data_ptr<T>()[c] = static_cast<T>(by_weight);
    made.bias.mutable_data_ptr<T>()[c] = static_cast<T>(sum);
    factor[c] = static_cast<T>(g[c] * inverse[c]);
    terms[channels + c] = by_weight;
  }
  if (kept.training) {
    terms = sum_over(kept.ranks.get(), std::move(terms));
    const double rows = kept.ranks ? kept.rows : static_cast<double>(layout.rows);
    for (int64_t c = 0; c < channels; ++c) {
      const double sum = terms[c], by_weight = terms[channels + c];
      slope[c] = static_cast<T>(-inverse[c] * by_weight / rows);
      shift[c] = static_cast<T>(-inverse[c] * (g[c] * sum - (centred ? 0 : bias[c] * by_weight)) / rows);
    }
  }
  layout.for_each_chunk([&](int64_t, int64_t first, int64_t count) {
    kernels::abn_gradient_apply(in.from_row(first, channels), {factor.data(), slope.data(), shift.data()}, count,
                                channels, to + first * channels);
  });
  return made;
}

}  // namespace

bool abn_has_kernel(const Tensor& x, const AbnState& state) {
  const auto type = x.scalar_type();
  const std::array all = {state.weight, state.bias, state.running_mean, state.running_var};
  const auto wanted = type == at::kBFloat16 ? at::kFloat : type;
  const auto fits = [&](const Tensor& values) {
    return values.scalar_type() == wanted && values.is_contiguous() && values.device() == x.device();
  };
  return have_kernels(Kernels::inplace_abn, x) && (x.dim() == 2 || x.dim() == 4) && x.numel() > 0 &&
         std::ranges::all_of(all, fits);
}

AbnKept abn_forward(const Tensor& x, Invertible activation, const AbnState& state, bool training, AbnForm form) {
  const at::NoGradGuard no_grad;
  if (!x.is_cpu()) return detail::abn_forward_on_gpu(x, activation, state, training, form);
  const RowChunks layout(x);
  AbnKept kept{activation, form, training, {}, {}};
  if (activation == Invertible::swish) {
    kept.sides = at::empty({layout.rows, kernels::side_bytes(layout.channels)}, at::kByte);
  }
  detail::as_stored(x, [&]<class S>(S) {
    using T = kernels::AbnNumber<S>;
    const auto statistics = training ? moments_of<S>(x).statistics(state.ranks.get()) : running_statistics(state);
    if (training) move_running(state, statistics);
    kept.ranks = training ? state.ranks : nullptr;
    kept.rows = statistics.rows;
    kept.numbers = numbers_of<T>(state, statistics);
    normalize<S>(x, activation, statistics, kept.numbers, kept.sides);
  });
  return kept;
}

AbnGradients abn_backward(const AbnKept& kept, Tensor gradient, Tensor z) {
  if (!z.is_cpu()) return detail::abn_backward_on_gpu(kept, std::move(gradient), z);
  AbnGradients made;
  detail::as_stored(z, [&]<class S>(S) { made = gradients_of<S>(kept, std::move(gradient), z); });
  return made;
}

}  // namespace tandem::memory
