#pragma once
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"

namespace torch::autograd {
struct Node;
}

namespace tandem::parallel::detail {

/// For GradientArrivals::check().
inline constexpr std::string_view kAllowUnused = "set find_unused_parameters, ";

/// The parameters that a step leaves out, where this is allowed.
///
///   find     looked for in the graph of each step. Each step costs an all_reduce of a byte a parameter.
///   static   those of the first step, for ever. Only the first step costs the message.
class UnusedParameters {
 public:
  UnusedParameters(const std::vector<Tensor>& parameters, bool find, bool is_static);

  bool are_allowed() const { return is_static_ || find_; }

  /// Those that the backward of `loss` does not reach, on this rank; all, if the loss requires no gradient. None where
  /// a step must use all.
  const std::vector<size_t>& in(const Tensor& loss);

  /// Finds those that no rank has used in a step. `used`: see GradientArrivals. Must be called after each step.
  /// Collective.
  void find_nowhere(const std::vector<uint8_t>& used, comm::ProcessGroup& group);

  const std::vector<size_t>& own() const { return own_; }          // as in() returned last
  const std::vector<size_t>& nowhere() const { return nowhere_; }  // as find_nowhere() found last

  /// True once the parameters that are left out are known for all steps.
  bool are_settled() const { return is_static_ && is_settled_; }

 private:
  bool find_, is_static_, is_settled_ = false;
  std::vector<std::shared_ptr<torch::autograd::Node>> ends_;  // keep the keys of index_of_ alive
  std::unordered_map<const torch::autograd::Node*, size_t> index_of_;
  std::vector<size_t> own_, nowhere_;
};

}  // namespace tandem::parallel::detail
