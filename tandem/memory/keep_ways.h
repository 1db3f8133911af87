#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/memory/chain.h"

namespace tandem::memory {

/// A way to keep a tensor from forward to backward: a row of keep_ways().
///
///   name     keeps                                             |restored x - x| is at most
///   bf16     the upper half of each float32                    |x| / 256 (above 2^-126)
///   int8     a byte, and a float32 for each 256 numbers        the largest magnitude of these numbers / 252
///   offload  the bytes, in host memory                         0
///
/// All are deterministic: nothing is drawn. bf16 and int8 keep the sign of a number above 2^-133, and int8 that of any
/// number: a rectifier that kept its result has the same gradient. The 256 numbers follow one another in memory. int8
/// makes NaN of all 256 if one is not finite.
struct KeepWay {
  std::string_view name;
  bool is_lossy = false;
  bool frees_device = false;  // it gains nothing for tensors in host memory; such rows are the last
  double bytes_moved = 0;     // that packing and unpacking each read and write, for each byte that stays

  bool (*can_keep)(const Tensor& tensor) = nullptr;
  std::vector<Tensor> (*pack)(const Tensor& numbers) = nullptr;  // of one dimension, contiguous
  Tensor (*unpack)(const std::vector<Tensor>& parts, int64_t count, const at::TensorOptions& options) = nullptr;
};
const std::vector<KeepWay>& keep_ways();

/// Throws c10::ValueError if there is none of this name.
const KeepWay& keep_way(std::string_view name);

struct KeepOptions {
  std::string name;                                         // of the region, for errors
  std::vector<std::shared_ptr<torch::nn::Module>> modules;  // whose parameters and buffers stay as they are
};

/// Runs forward(inputs). What its operations save for backward is kept in the way: packed at once, and unpacked when
/// its node of the graph runs. The result has the same bits as without keep_as(); gradients have if the way is not
/// lossy.
///
///   forward    x ─▶ operation ─▶ y ─▶ ...     kept: pack(x), not x
///   backward   unpack(pack(x)) ─▶ node of the operation
///
/// These stay as they are: leaves that require a gradient, other than inputs, and their views, parameters and buffers
/// of the modules, tensors of one dimension or less (statistics) or of fewer than 1,024 numbers, tensors with gaps or
/// without a storage, and all that the way cannot keep: bf16 and int8 keep only float32 and float64, offload only what
/// is not in host memory.
///
/// Numbers that several operations of the region save, of one storage and version, are packed once; nodes that hold
/// them unpacked at the same time share them. The memory of the original is free when nobody else holds it: its owner,
/// or an operation outside the region that has saved it too.
///
/// Regions nest, also in and around recompute() (recompute.h). Within recompute(), forward packs in vain the first
/// time. The inputs of a recompute() inside a lossy region stay as they are, for what it computes must be the same
/// again. So does what in-place batch normalisation keeps (inplace_abn.h), which its backward inverts. Backward may run
/// repeatedly (retain_graph) and twice over (create_graph). A second derivative through a lossy region is that of the
/// restored numbers. Forward-mode derivatives are not supported.
///
/// Unpacking throws c10::Error if the tensor was changed in place since it was saved, as plain autograd does.
Flow keep_as(const KeepWay& way, const std::function<Flow(const Flow&)>& forward, const Flow& inputs,
             const KeepOptions& options = {});

/// The same for one tensor.
Tensor keep_as(const KeepWay& way, const std::function<Tensor(const Tensor&)>& forward, const Tensor& input,
               const KeepOptions& options = {});

/// Each block is kept in the way, as a region of its own.
Chain kept_chain(const Chain& chain, const KeepWay& way);

}  // namespace tandem::memory
