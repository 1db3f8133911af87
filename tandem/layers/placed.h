#pragma once
#include <vector>

#include "tandem/parallel/mesh.h"
#include "tandem/parallel/parameter.h"

namespace torch::nn {
class Module;
}

namespace tandem::layers {

/// The registered parameters of a model whose layers are divided over mesh.group(axis), each tensor once, with the
/// names that they have in the whole model and where this rank's parts lie in it (Layer::parts()). What is no part is
/// on every rank. Not collective.
std::vector<parallel::Parameter> parameters_of(const torch::nn::Module& model, const parallel::Mesh& mesh,
                                               parallel::Axis axis = parallel::Axis::tensor);

/// The same of its buffers.
std::vector<parallel::Parameter> buffers_of(const torch::nn::Module& model, const parallel::Mesh& mesh,
                                            parallel::Axis axis = parallel::Axis::tensor);

}  // namespace tandem::layers
