#pragma once
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/parallel/parameter.h"
#include "tandem/storage/safetensors.h"

namespace torch::nn {
class Module;
}

namespace tandem::train {

using parallel::Parameter;
using parallel::parameters_of;
using parallel::Placement;
using parallel::Split;
using parallel::tensors_of;
using parallel::trained_of;

/// A tensor that forward changes (running statistics). The values of rank 0 are used.
using Buffer = storage::NamedTensor;

/// The registered buffers of a module, under its names, each once; every rank holds all of each.
std::vector<Buffer> buffers_of(const torch::nn::Module& module);

std::vector<Tensor> tensors_of(const std::vector<Buffer>& buffers);

/// Memory of Category::buffers.
std::vector<Tensor> copies_of(const std::vector<Buffer>& buffers);

}  // namespace tandem::train
