#pragma once
#include <ATen/ATen.h>

#include "tandem/base/context.h"
#include "tandem/base/rng.h"

namespace tandem::layers {

/// Which values of a sample a rank has: of each of so many rows those between the ones before and after.
struct SampleValues {
  int64_t rows = 1, before = 0, own = 0, after = 0;
};

/// [samples, rows * own] of draw(random), float32 on the CPU. The numbers of a sample depend on seed, step and its
/// place in the whole batch (Context), on `stream` and on their place in the whole sample alone: they are the same on
/// any number of ranks.
template <class Draw>
Tensor drawn_by_sample(int64_t samples, const SampleValues& values, uint64_t stream, const Draw& draw) {
  const auto context = current_context();
  const auto numbers = at::empty({samples, values.rows * values.own}, at::kFloat);
  auto* out = numbers.mutable_data_ptr<float>();
  for (int64_t n = 0; n < samples; ++n) {
    const auto number = static_cast<uint64_t>(context.first_sample + n);
    CounterRng random(context.seed, stream + static_cast<uint64_t>(context.step), number);
    for (int64_t row = 0; row < values.rows; ++row) {
      for (int64_t i = 0; i < values.before; ++i) draw(random);
      for (int64_t i = 0; i < values.own; ++i) *out++ = draw(random);
      for (int64_t i = 0; i < values.after; ++i) draw(random);
    }
  }
  return numbers;
}

/// 0 with probability `rate`, or else 1 / (1 - rate).
inline Tensor dropping_mask(int64_t samples, const SampleValues& values, double rate, uint64_t stream) {
  const auto scale = static_cast<float>(1 / (1 - rate));
  constexpr double kRange = 4294967296.0;  // of a 32-bit number
  const auto threshold = static_cast<uint64_t>(rate * kRange);
  return drawn_by_sample(samples, values, stream,
                         [=](CounterRng& random) { return random.next() < threshold ? 0.0F : scale; });
}

/// Throws c10::ValueError, which begins with `what`, for a rate below 0 or not below 1.
inline void check_rate(const char* what, double rate) {
  TORCH_CHECK_VALUE(rate >= 0 && rate < 1, what, " is ", rate, ", wanted 0 or more and below 1");
}

}  // namespace tandem::layers
