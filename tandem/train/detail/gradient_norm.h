#pragma once
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/kernels/square_sum.h"
#include "tandem/train/detail/step_numbers.h"
#include "tandem/train/optimizer.h"

namespace tandem::train::detail {

/// The norm of the gradients of a step, in two halves with other work between them: see clip_grad_norm(), whose
/// arguments these are.
class GradientNorm {
 public:
  GradientNorm(std::vector<Parameter> parameters, comm::ProcessGroup& group, NormSum sum,
               parallel::Axes along = parallel::Axes::all());

  /// Starts the sums of squares of this rank. Sparse gradients must be joined (sparse_gradient.h). NormSum::exactly:
  /// of tensors on a device the host works out the sums, and waits.
  void start(StepNumbers& numbers);

  /// The norm over all ranks. `numbers`: as start() had them. Collective, as clip_grad_norm().
  double end(StepNumbers& numbers);

  /// Scales the gradients down so that their norm, now `norm`, is at most `largest`.
  void clip(double norm, double largest) const;

 private:
  void add_exactly(const Tensor& gradient, kernels::SquareSum& sum) const;
  double end_exactly();

  std::vector<Parameter> parameters_;
  comm::ProcessGroup& group_;
  NormSum sum_;
  parallel::Axes along_;
  bool has_parts_;    // some rank holds a part
  size_t place_ = 0;  // among the numbers: of what all hold alike, of parts
  kernels::SquareSum alike_, of_parts_;
};

}  // namespace tandem::train::detail
