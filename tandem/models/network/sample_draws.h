#pragma once
#include <ATen/ATen.h>

#include "tandem/base/context.h"
#include "tandem/base/rng.h"

namespace tandem::models {

/// [samples, values] of draw(random), float32 on the CPU. The numbers of a sample depend on seed, step and its place in
/// the whole batch (Context) and on `stream` alone: they are the same on any number of ranks.
template <class Draw>
Tensor drawn_by_sample(int64_t samples, int64_t values, uint64_t stream, const Draw& draw) {
  const auto context = current_context();
  const auto numbers = at::empty({samples, values}, at::kFloat);
  auto* out = numbers.mutable_data_ptr<float>();
  for (int64_t n = 0; n < samples; ++n) {
    const auto number = static_cast<uint64_t>(context.first_sample + n);
    CounterRng random(context.seed, stream + static_cast<uint64_t>(context.step), number);
    for (int64_t i = 0; i < values; ++i) *out++ = draw(random);
  }
  return numbers;
}

}  // namespace tandem::models
