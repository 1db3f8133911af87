#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/train/checkpoint_store.h"

namespace torch::nn {
class Module;
}

namespace tandem::train {

/// A tensor that training changes. Without `rows` every rank holds the same; with it, this rank holds those rows of a
/// tensor that is split over the ranks.
struct Parameter {
  std::string name;
  Tensor tensor;
  std::optional<RowRange> rows;
};

/// A tensor that forward changes (running statistics); rank 0's counts.
using Buffer = NamedTensor;

/// What a module registers, by its names; every rank holds all of it.
std::vector<Parameter> parameters_of(const torch::nn::Module& module);
std::vector<Buffer> buffers_of(const torch::nn::Module& module);

}  // namespace tandem::train
