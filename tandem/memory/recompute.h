#pragma once
#include <ATen/core/Generator.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/memory/chain.h"

namespace tandem::memory {

/// How the values that backward computes again are compared with those of forward.
enum class ValueCheck {
  none,    // for kernels that do not give the same bits each time
  sample,  // 16 elements of each tensor, their bits; only tensors on the CPU
  all,     // all elements, their bits; costs a pass over each tensor in forward and in backward
};

struct RecomputeOptions {
  std::string name;  // of the region, for errors; empty: that of the context's block

  /// The modules that `forward` uses: an error names their parameters, and backward also refuses to run if one that
  /// needs no gradient has changed.
  std::vector<std::shared_ptr<torch::nn::Module>> modules;

  /// Gives the buffers of `modules` back, when forward has run again, the values from before. For modules that do not
  /// obey BatchStatistics::hold (base/context.h), such as torch::nn::BatchNorm2d. Memory: a copy of the buffers, while
  /// forward runs again.
  bool restore_buffers = false;

  /// From which `forward` draws random numbers, besides torch's default generators. Draws on the default generator of
  /// the CPU are repeated too, but not on a thread-rank, which shares this generator with other ranks: backward throws.
  std::vector<at::Generator> generators;

  ValueCheck values = ValueCheck::sample;

  /// Backward runs `forward` only as far as to the last tensor that it needs. If false, `forward` runs to its end.
  bool stop_early = true;

  /// Asked for each operation of `forward`, in their order, by its name ("aten::convolution", "aten::mm"); not when
  /// forward runs again. If it returns true, the results of the operation are kept, and the operation is not run again.
  /// Never kept: operations that draw random numbers, return views or write to their arguments. Costs less than 1 us
  /// an operation.
  std::function<bool(std::string_view operation)> keep;
};

/// Runs forward(inputs). What its operations save for backward is not kept, but computed again by a second call of
/// `forward` when backward first needs a part of it (gradient checkpointing, non-reentrant). The result and all
/// gradients have the same bits as without recompute().
///
///   forward    forward(inputs) ─────────────▶ outputs      kept: inputs, parameters, versions
///   backward   forward(inputs again) ──▶ saved tensors     used by the nodes of the first call
///
/// `forward` must compute the same again: from its inputs, from tensors that it captures and that do not change, from
/// the context (base/context.h), autocast's settings and random numbers, which are the same in the second call. There
/// the context's rule for batch statistics is BatchStatistics::hold. Calls nest. Backward may run repeatedly
/// (retain_graph), in parts and twice over (create_graph), each time with one more call of `forward`.
///
/// Memory: a tensor that was computed again is freed with its node of the graph, when plain autograd would free it; if
/// the graph is retained, as soon as its node has it, or else when this backward ends. Inputs, and what `forward`
/// captures, are held until the last node that saved a tensor is freed. Random numbers: 2.5 KB of state if the default
/// generator was used, not in the meter's account. Each saved tensor: about 400 bytes, not in the meter's account.
///
/// Backward throws c10::Error if an input, a parameter or a saved tensor has been changed in place since forward (also
/// inside the region), if the second call saves other tensors than the first (number, shape, type, values), or if it
/// draws from the default generator on a thread-rank. Tensors in memory that a kernel changes without a new version of
/// the tensor are found by their values only.
///
/// Where tangents travel (base/tangent.h) forward builds no graph, and backward builds that of the second call:
/// `modules` must name what holds each parameter that requires a gradient.
///
/// On its first call in a process it puts itself in front of libtorch's autograd engine, for the hooks on saved
/// tensors; that engine still does all work.
/// Source: Chen et al. 2016, Training deep nets with sublinear memory cost.
Flow recompute(const std::function<Flow(const Flow&)>& forward, const Flow& inputs,
               const RecomputeOptions& options = {});

/// The same for one tensor.
Tensor recompute(const std::function<Tensor(const Tensor&)>& forward, const Tensor& input,
                 const RecomputeOptions& options = {});

}  // namespace tandem::memory
