#pragma once
#include <vector>

#include "tandem/base/tensor.h"

namespace tandem::parallel::detail {

/// While the object lives, memory that backward makes for the gradients of these parameters has the category gradients:
/// the operators that make it know no purpose.
class GradientTags {
 public:
  /// Parameters that require no gradient are left out.
  explicit GradientTags(const std::vector<Tensor>& parameters);
  ~GradientTags();
  GradientTags(const GradientTags&) = delete;
  GradientTags& operator=(const GradientTags&) = delete;

 private:
  std::vector<Tensor> parameters_;
  std::vector<unsigned> hooks_;  // one a parameter
};

}  // namespace tandem::parallel::detail
