#pragma once
#include <functional>
#include <memory>

#include "tandem/base/tensor.h"

namespace torch::autograd {
struct Node;
}

namespace tandem::parallel::detail {

/// Calls a function whenever a backward has put a gradient into the .grad of a parameter, or has added to it, on the
/// thread that runs backward; until this object ends.
class GradientWatch {
 public:
  /// The parameter must require a gradient.
  GradientWatch(const Tensor& parameter, std::function<void()> call);
  ~GradientWatch();
  GradientWatch(GradientWatch&&) noexcept = default;
  GradientWatch& operator=(GradientWatch&&) = delete;

 private:
  std::shared_ptr<torch::autograd::Node> node_;  // a parameter holds its own only while a graph does
  uintptr_t key_;
};

}  // namespace tandem::parallel::detail
