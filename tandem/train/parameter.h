#pragma once
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/parallel/parameter.h"

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

/// The registered buffers of a module, which forward changes (running statistics), under its names, each once; every
/// rank holds all of each.
std::vector<Parameter> buffers_of(const torch::nn::Module& module);

/// Memory of Category::buffers.
std::vector<Tensor> copies_of(const std::vector<Parameter>& buffers);

}  // namespace tandem::train
