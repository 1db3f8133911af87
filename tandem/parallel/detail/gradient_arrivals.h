#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"

namespace tandem::parallel::detail {

/// Records which parameters have got a gradient in a backward pass, and in the whole step.
class GradientArrivals {
 public:
  /// All parameters must require a gradient.
  GradientArrivals(std::vector<Tensor> parameters, std::vector<std::string> names);
  ~GradientArrivals();  // removes its hooks from the parameters
  GradientArrivals(const GradientArrivals&) = delete;
  GradientArrivals& operator=(const GradientArrivals&) = delete;

  const std::vector<Tensor>& parameters() const { return parameters_; }
  const std::vector<std::string>& names() const { return names_; }

  /// Clears the record of the step, and of the backward. Must be called before the first backward of each step.
  void begin_step();

  /// Clears the record of the backward. Must be called before each one whose gradients are summed.
  void begin_backward();

  /// These parameters need no gradient in this backward.
  void excuse(const std::vector<size_t>& parameters);
  void excuse_all();
  void excuse_used();  // those that have come in an earlier backward of the step
  bool are_complete() const;
  std::vector<Tensor> missing() const;

  /// From now on a backward throws c10::ValueError, on the ranks where it happens, when one of these parameters gets a
  /// gradient. `place`: " on rank 1 of 4".
  void refuse(const std::vector<size_t>& parameters, const std::string& place);

  /// A byte for each parameter: 1 if a gradient of it has been computed in this step.
  const std::vector<uint8_t>& used() const { return record_->used; }

  /// Throws c10::ValueError, with the same text on all ranks, if a parameter got no gradient on some rank. `remedy`:
  /// one more, such as "set find_unused_parameters, ". Collective.
  void check(comm::ProcessGroup& group, std::string_view remedy = "") const;

 private:
  /// Shared with the hooks.
  struct Record {
    std::vector<uint8_t> came, used, refused;
    std::string place;
  };

  std::vector<Tensor> parameters_;
  std::vector<std::string> names_;
  std::vector<unsigned> hooks_;
  std::shared_ptr<Record> record_;
};

}  // namespace tandem::parallel::detail
