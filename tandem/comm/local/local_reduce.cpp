#include "tandem/comm/local/local_reduce.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>

#include <algorithm>
#include <cstring>

namespace tandem::comm {
namespace {

using c10d::ReduceOp;

// The sum of a slice is built in a buffer that stays in the first-level cache, then written to every rank once.
constexpr int64_t kBufferBytes = 16 * 1024;

template <class T, class A>
void accumulate(A* __restrict sum, const T* __restrict part, int64_t n, ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::MAX:
      for (int64_t i = 0; i < n; ++i) sum[i] = std::max(sum[i], static_cast<A>(part[i]));
      break;
    case ReduceOp::MIN:
      for (int64_t i = 0; i < n; ++i) sum[i] = std::min(sum[i], static_cast<A>(part[i]));
      break;
    default:
      for (int64_t i = 0; i < n; ++i) sum[i] += static_cast<A>(part[i]);
  }
}

template <class T>
void reduce_block(ReduceOp::RedOpType op, std::span<const void* const> inputs, std::span<void* const> outputs,
                  int64_t at, int64_t n) {
  using A = at::opmath_type<T>;
  alignas(64) A sum[kBufferBytes / sizeof(A)];
  const T* first = static_cast<const T*>(inputs[0]) + at;
  for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<A>(first[i]);
  for (size_t rank = 1; rank < inputs.size(); ++rank) {
    accumulate(sum, static_cast<const T*>(inputs[rank]) + at, n, op);
  }
  if (op == ReduceOp::AVG) {
    for (int64_t i = 0; i < n; ++i) sum[i] /= static_cast<A>(inputs.size());
  }
  T* target = static_cast<T*>(outputs[0]) + at;
  for (int64_t i = 0; i < n; ++i) target[i] = static_cast<T>(sum[i]);
  for (size_t i = 1; i < outputs.size(); ++i) std::memcpy(static_cast<T*>(outputs[i]) + at, target, n * sizeof(T));
}

}  // namespace

void check_reduction(at::ScalarType type, ReduceOp::RedOpType op) { reduce_slice(type, op, {}, {}, 0, 0); }

void reduce_slice(at::ScalarType type, ReduceOp::RedOpType op, std::span<const void* const> inputs,
                  std::span<void* const> outputs, int64_t begin, int64_t end) {
  TORCH_CHECK_VALUE(op == ReduceOp::SUM || op == ReduceOp::AVG || op == ReduceOp::MAX || op == ReduceOp::MIN,
                    "reduction is number ", static_cast<int>(op), ", wanted sum, mean, max or min");
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, type, "reduce", [&] {
    constexpr int64_t kBlock = kBufferBytes / sizeof(at::opmath_type<scalar_t>);
    for (int64_t at = begin; at < end; at += kBlock) {
      reduce_block<scalar_t>(op, inputs, outputs, at, std::min(kBlock, end - at));
    }
  });
}

}  // namespace tandem::comm
