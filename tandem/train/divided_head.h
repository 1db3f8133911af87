#pragma once
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/comm/handle.h"
#include "tandem/pipeline/action.h"

namespace tandem::train {

/// The classifier of a task, divided over all ranks of a pipeline (pipeline::is_of_head()), in one step. Collective as
/// the program's actions are.
class DividedHead {
 public:
  virtual ~DividedHead() = default;

  /// Where the last stage is: what it has made of this rank's samples, [n, D], without a graph.
  virtual void end_forward(int micro_batch, const Tensor& features) = 0;

  /// Returns what a send has under way.
  virtual std::vector<comm::Handle> run(const pipeline::Action& action) = 0;

  /// Where the last stage is, after What::receive_scores: this rank's term of the loss, [] (Task::divided_along()), and
  /// the gradient of its features, [n, D], which is asked for once.
  virtual Tensor loss(int micro_batch) = 0;
  virtual Tensor take_gradient(int micro_batch) = 0;

  /// To rehearse a step: features that lie in memory as those of a micro-batch, and what gets the class gradient.
  virtual Tensor features_like(int micro_batch) = 0;
  virtual const Tensor& weight() = 0;
};

}  // namespace tandem::train
