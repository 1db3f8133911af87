#pragma once
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

#include "tandem/train/parameter.h"

namespace tandem::train::detail {

/// Numbers that a step works out where its tensors lie, and that the host reads once, when all of the step's work has
/// been started: until then no device is waited for. On CPUs they lie in memory that no book of the meter counts.
class StepNumbers {
 public:
  explicit StepNumbers(c10::Device device) : device_(device) {}

  /// Room for `count` more: float64, zeros.
  Tensor add(int64_t count);
  size_t count() const { return count_; }

  /// All numbers, in the order in which they were added. Waits for the device if some were added since the last call.
  const std::vector<double>& read();

 private:
  c10::Device device_;
  size_t count_ = 0;
  std::vector<std::unique_ptr<double[]>> memory_;  // of those on a CPU
  std::vector<Tensor> added_;
  std::vector<double> read_;
};

/// Where a step's numbers are worked out: the CPU if there are no parameters.
c10::Device device_of(const std::vector<Parameter>& parameters);

/// Calls `work` with the numbers of a dense tensor, on CPUs in pieces: libtorch's operators in another type would copy
/// the whole tensor.
void for_each_piece(const Tensor& tensor, const std::function<void(const Tensor& piece)>& work);

/// Adds the sum of the squares of a dense tensor to `sum`, one of a step's numbers. `own`: another, for a moment.
/// Memory: square_bytes().
void add_square(const Tensor& tensor, const Tensor& own, const Tensor& sum);
int64_t square_bytes(const Tensor& tensor);

}  // namespace tandem::train::detail
