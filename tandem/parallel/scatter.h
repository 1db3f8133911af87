#pragma once
#include <c10/core/Device.h>

#include <span>
#include <vector>

#include "tandem/parallel/nested.h"

// How the batch of one process comes to its replicas, and what they give comes back.
namespace tandem::parallel {

/// torch::chunk's rule: each part has ceil(size / parts), the last the rest, and there are fewer parts if nothing is
/// left for them. A size of 0 is one part.
///
///   10 over 4   3 3 3 1        4 over 3   2 2        2 over 4   1 1
std::vector<int64_t> chunk_sizes(int64_t size, int parts);

struct ScatterOptions {
  int64_t dim = 0;
  /// Of each device along `dim`; 0 leaves a device out. Empty: chunk_sizes().
  std::vector<int64_t> sizes = {};
};

/// Cuts each tensor along `dim` into a part for each device, of the same form as the input: views where the part stays
/// on the tensor's device, else copies. Devices for which nothing is left get no part. Tensors without dims go whole to
/// each part. Differentiable.
///
/// Throws c10::ValueError if the tensors differ in their sizes along `dim`, if none has a dim, or if `sizes` has
/// another number or another sum; c10::IndexError if a tensor has no such dim.
std::vector<Nested> scatter(const Nested& input, std::span<const c10::Device> devices,
                            const ScatterOptions& options = {});

/// What becomes of tensors without dims, such as losses.
enum class Scalars {
  vector,  // one number a replica: [replicas]
  mean,    // the mean weighted with the sizes of the parts: the loss of the whole batch from means of its parts
};

struct GatherOptions {
  int64_t dim = 0;
  Scalars scalars = Scalars::vector;
  std::vector<int64_t> sizes = {};  // of the parts, for Scalars::mean
};

/// Joins values of the same form on a device: tensors along `dim`, scalars as the options say. One value stays as it
/// is, but for a scalar that becomes a vector. Differentiable.
///
/// Throws c10::ValueError if the forms differ, if there is no value, or if sizes are missing for a mean.
Nested gather(std::span<const Nested> values, c10::Device device, const GatherOptions& options = {});

}  // namespace tandem::parallel
