#pragma once
#include <memory>
#include <vector>

#include "tandem/base/tensor.h"

namespace torch::nn {
class Module;
}

namespace tandem::parallel {

/// The module itself and clones of it, `count` in all. The clones have modules and buffers of their own; their
/// parameters share the memory of the module's. Throws c10::Error if the module has no clone() (torch::nn::Cloneable),
/// and c10::ValueError if count is below 1. Memory: the buffers of each clone.
std::vector<std::shared_ptr<torch::nn::Module>> replicate(const std::shared_ptr<torch::nn::Module>& module, int count);

/// Makes clones what the module is now: parameters share its memory and require a gradient where its own do; buffers
/// are copies of its buffers; each submodule trains or evaluates as its own does. Throws c10::ValueError if the modules
/// differ in their parameters, buffers or submodules.
void refresh(const torch::nn::Module& module, torch::nn::Module& clone);

}  // namespace tandem::parallel
