#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"

namespace tandem::parallel::detail {

/// Records which parameters have got a gradient in a backward pass.
class GradientArrivals {
 public:
  /// All parameters must require a gradient.
  GradientArrivals(std::vector<Tensor> parameters, std::vector<std::string> names);
  ~GradientArrivals();  // removes its hooks from the parameters
  GradientArrivals(const GradientArrivals&) = delete;
  GradientArrivals& operator=(const GradientArrivals&) = delete;

  const std::vector<Tensor>& parameters() const { return parameters_; }

  /// Clears the record. Must be called before each backward.
  void reset();
  bool are_complete() const;

  /// Throws c10::ValueError, with the same text on all ranks, if a parameter got no gradient on some rank. Collective.
  void check(comm::ProcessGroup& group) const;

 private:
  std::vector<Tensor> parameters_;
  std::vector<std::string> names_;
  std::vector<unsigned> hooks_;
  std::shared_ptr<std::vector<uint8_t>> came_;  // shared with the hooks
};

}  // namespace tandem::parallel::detail
