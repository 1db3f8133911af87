#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/parallel/placement.h"

namespace torch::nn {
class Module;
}

namespace tandem::parallel {

/// A tensor that training changes, and which part of it this rank holds. Clipping, checkpoints and hashes depend on the
/// placement and on nothing else of a parallel plan, so it is set when the parameter is made.
class Parameter {
 public:
  /// Every rank of the job holds all of it.
  static Parameter replicated(std::string name, Tensor tensor);

  /// Each rank of the job holds its own part, along one dim. Throws as placed().
  static Parameter split(std::string name, Tensor tensor, const Split& split);

  /// `tensor` is the part of the tensor `name` that this rank holds by `placement`. Throws as check_placement().
  static Parameter placed(std::string name, Tensor tensor, Placement placement);

  /// Another tensor with the placement of this one, such as its momentum.
  Parameter beside(std::string name, Tensor tensor) const;

  /// A tensor that each rank which holds a part of this one holds whole, such as its step count.
  Parameter whole_beside(std::string name, Tensor tensor) const;

  std::string name;
  Tensor tensor;
  Placement placement;

 private:
  Parameter(std::string of_name, Tensor of_tensor, Placement of_placement);
};

/// The registered parameters of a module, under its names; every rank holds all of each. One that two modules share is
/// listed once, under its first name.
std::vector<Parameter> parameters_of(const torch::nn::Module& module);

/// Throws c10::ValueError if a tensor is listed twice. `who`: begins the text.
void check_each_once(std::string_view who, const std::vector<Parameter>& parameters);

/// Those that require a gradient: without the frozen ones.
std::vector<Parameter> trained_of(const std::vector<Parameter>& parameters);

std::vector<Tensor> tensors_of(const std::vector<Parameter>& parameters);
std::vector<std::string> names_of(const std::vector<Parameter>& parameters);

}  // namespace tandem::parallel
