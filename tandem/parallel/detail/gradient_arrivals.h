#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"

namespace tandem::parallel::detail {

/// Notes which parameters backward has brought a gradient to.
class GradientArrivals {
 public:
  /// All require a gradient.
  GradientArrivals(std::vector<Tensor> parameters, std::vector<std::string> names);
  ~GradientArrivals();  // takes its hooks out of the parameters
  GradientArrivals(const GradientArrivals&) = delete;
  GradientArrivals& operator=(const GradientArrivals&) = delete;

  /// Forgets what has come: before a backward.
  void reset();
  bool are_complete() const;

  /// Throws c10::ValueError with the same text on all ranks when a parameter of any rank got no gradient. Collective.
  void check(comm::ProcessGroup& group) const;

 private:
  std::vector<Tensor> parameters_;
  std::vector<std::string> names_;
  std::vector<unsigned> hooks_;
  std::shared_ptr<std::vector<uint8_t>> came_;  // shared with the hooks
};

}  // namespace tandem::parallel::detail
