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
using parallel::RowRange;

/// A tensor that forward changes (running statistics); rank 0's counts.
using Buffer = storage::NamedTensor;

/// What a module registers, by its names; every rank holds all of it.
std::vector<Parameter> parameters_of(const torch::nn::Module& module);
std::vector<Buffer> buffers_of(const torch::nn::Module& module);

}  // namespace tandem::train
