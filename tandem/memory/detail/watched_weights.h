#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tandem/memory/chain.h"
#include "tandem/memory/detail/tensor_trace.h"

namespace tandem::memory::detail {

/// The parameters that a region uses, also those that no operation saves, such as a bias.
class WatchedWeights {
 public:
  using Modules = std::vector<std::shared_ptr<torch::nn::Module>>;

  /// Adds the leaves of the graph that lead to `outputs`, as far as it was built since node `first_node` of this
  /// thread, and all parameters of `modules`; but no inputs.
  void watch(const Flow& inputs, const Flow& outputs, uint64_t first_node, const Modules& modules);

  /// Whether the graph has nodes of torch::autograd::Function.
  bool have_custom_functions() const { return has_custom_functions_; }

  /// Throws c10::Error if one has changed since.
  void check(const std::string& where) const;

 private:
  struct Weight {
    TensorTrace trace;
    const void* tensor;  // to find its name
  };

  std::string name_of(const Weight& weight) const;

  std::vector<Weight> weights_;
  bool has_custom_functions_ = false;
  Modules modules_;
};

}  // namespace tandem::memory::detail
