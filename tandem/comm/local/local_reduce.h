#pragma once
#include <ATen/core/TensorBody.h>

#include <span>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace tandem::comm {

/// Throws c10::ValueError if the reduction is not supported, c10::NotImplementedError if the type is not.
void check_reduction(at::ScalarType type, c10d::ReduceOp::RedOpType op);

/// Reduces elements [begin, end) of all ranks' arrays in rank order, and writes the result to each of `outputs`. An
/// output may be the same memory as an input: each element is read from all inputs before it is written. bfloat16 and
/// half are summed in float32. Throws as check_reduction() does.
void reduce_slice(at::ScalarType type, c10d::ReduceOp::RedOpType op, std::span<const void* const> inputs,
                  std::span<void* const> outputs, int64_t begin, int64_t end);

}  // namespace tandem::comm
