#include "tandem/memory/detail/abn_on_gpu.h"

#include <ATen/ATen.h>

#include "tandem/kernels/gpu_kernels.h"
#include "tandem/memory/detail/device_statistics.h"
#include "tandem/memory/detail/sole_owner.h"
#include "tandem/memory/detail/stored_type.h"
#include "tandem/memory/gpu_launch.h"

namespace tandem::memory::detail {
namespace {

namespace gpu = kernels::gpu;
using kernels::Invertible;

template <class T>
T* numbers(const Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.mutable_data_ptr()) : nullptr;
}

template <class T>
const T* read(const Tensor& tensor) {
  return tensor.defined() ? static_cast<const T*>(tensor.const_data_ptr()) : nullptr;
}

/// Of the channels of x: mean, 1 / deviation, over so many values of each.
struct Moments {
  Tensor mean, inverse;
  double rows;
};

/// Of the images of all ranks.
Moments moments_over_ranks(const Tensor& x, const AbnState& state) {
  const auto statistics = DeviceMoments::of_batch(x).statistics(state.ranks.get());
  move_running(state, statistics);
  const auto type = state.weight.scalar_type();
  return {statistics.mean.to(type), (statistics.variance + state.epsilon).rsqrt_().to(type), statistics.rows};
}

/// Moves the running statistics where the context wants it.
Moments moments_of(const Tensor& x, const AbnState& state) {
  if (state.ranks) return moments_over_ranks(x, state);
  const auto rows = static_cast<double>(x.numel() / x.size(1));
  check_values(rows, /*of_all_ranks=*/false);
  const auto [mean, inverse] = at::batch_norm_stats(x, state.epsilon);
  const auto moved = begin_move(state, rows);
  if (moved.momentum > 0) {
    moved.mean.lerp_(mean, moved.momentum);
    const auto variance = inverse.square().reciprocal_().sub_(state.epsilon).mul_(rows / (rows - 1));
    moved.variance.lerp_(variance, moved.momentum);
  }
  end_move(state, rows, mean, inverse);
  return {mean, inverse, rows};
}

kernels::AbnChannels channels_of(const Tensor& numbers) {
  auto* first = detail::numbers<double>(numbers);
  return {first, first + numbers.size(1), first + 2 * numbers.size(1)};
}

template <class S, class T = kernels::AbnNumber<S>>
void forward(AbnKept& kept, const Tensor& x, const AbnState& state, const Moments& of, const RowChunks& layout) {
  GpuLaunch launch(x);
  const auto lines = at::empty({2, layout.channels}, state.weight.options().requires_grad(false));
  auto* scale = numbers<T>(lines);
  const kernels::AbnScaleBody<T> how = {read<T>(state.weight),
                                        read<T>(state.bias),
                                        read<T>(of.mean),
                                        read<T>(of.inverse),
                                        kLeastWeight,
                                        channels_of(kept.numbers),
                                        scale,
                                        scale + layout.channels};
  launch.check(gpu::for_each(how, layout.channels, launch.stream()));
  launch.check(gpu::abn_forward<S>({kept.activation, static_cast<T>(kLeakySlope), how.scale, how.offset}, layout.rows,
                                   layout.channels, numbers<S>(x), numbers<uint8_t>(kept.sides), launch.stream()));
}

/// As gradients_of() of the CPU: sums, what they make of each channel, and the pass that applies it.
template <class S, class T = kernels::AbnNumber<S>>
AbnGradients backward(const AbnKept& kept, Tensor gradient, const Tensor& z) {
  const RowChunks layout(z);
  const int64_t channels = layout.channels;
  GpuLaunch launch(z);
  const auto plain = z.options().dtype(c10::CppTypeToScalarType<T>::value);
  const bool centred = kept.form == AbnForm::one;
  AbnGradients made{result_over(gradient, z), at::empty({channels}, plain), at::empty({channels}, plain)};
  const auto centre = centred ? kept.numbers[1].to(plain.dtype()) : at::zeros({channels}, plain);
  const bool unfolds = std::is_same_v<S, T> && kept.activation == Invertible::swish && is_sole_owner(z);

  kernels::AbnBackward<S> in{kept.activation,   static_cast<T>(kLeakySlope), read<S>(z),
                             read<S>(gradient), read<uint8_t>(kept.sides),   read<T>(centre)};
  kernels::AbnUnfolded<S> unfolded{nullptr, nullptr};
  if (unfolds) unfolded = {numbers<S>(z), numbers<S>(made.input)};
  const auto sums = at::empty({4, channels}, plain.dtype(at::kDouble)), lines = at::empty({3, channels}, plain);
  auto *sum = numbers<double>(sums), *product = sum + channels, *by_bias = product + channels,
       *by_weight = by_bias + channels;
  auto *factor = numbers<T>(lines), *slope = factor + channels, *shift = slope + channels;
  launch.check(gpu::abn_gradient_sums<S>(in, layout.rows, channels, unfolded, sum, product,
                                         launch.scratch(gpu::abn_scratch(layout.rows, channels)), launch.stream()));
  if (unfolds) in = {Invertible::identity, T(1), unfolded.y, unfolded.dy, nullptr, in.centre};

  const auto of = channels_of(kept.numbers);
  const kernels::AbnParameterBody<T> parameters = {
      of, centred, sum, product, numbers<T>(made.weight), numbers<T>(made.bias), factor, by_bias, by_weight};
  launch.check(gpu::for_each(parameters, channels, launch.stream()));
  if (kept.ranks) kept.ranks->add(sums.narrow(0, 2, 2).view({-1}));
  const kernels::AbnShiftBody<T> shifts = {of, centred, kept.rows, by_bias, by_weight, slope, shift};
  launch.check(gpu::for_each(shifts, channels, launch.stream()));
  launch.check(gpu::abn_gradient_apply<S>(in, {factor, slope, shift}, layout.rows, channels, numbers<S>(made.input),
                                          launch.stream()));
  return made;
}

}  // namespace

AbnKept abn_forward_on_gpu(const Tensor& x, Invertible activation, const AbnState& state, bool training, AbnForm form) {
  const RowChunks layout(x);
  AbnKept kept{activation, form, training, {}, {}};
  kept.numbers = at::empty({3, layout.channels}, x.options().dtype(at::kDouble));
  if (activation == Invertible::swish) {
    kept.sides = at::empty({layout.rows, kernels::side_bytes(layout.channels)}, x.options().dtype(at::kByte));
  }
  const auto of =
      training ? moments_of(x, state) : Moments{state.running_mean, (state.running_var + state.epsilon).rsqrt_(), 0};
  kept.ranks = training ? state.ranks : nullptr;
  kept.rows = of.rows;
  as_stored(x, [&]<class S>(S) { forward<S>(kept, x, state, of, layout); });
  return kept;
}

AbnGradients abn_backward_on_gpu(const AbnKept& kept, Tensor gradient, const Tensor& z) {
  AbnGradients made;
  as_stored(z, [&]<class S>(S) { made = backward<S>(kept, std::move(gradient), z); });
  return made;
}

}  // namespace tandem::memory::detail
