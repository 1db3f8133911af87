#pragma once
#include <vector>

#include "tandem/base/tensor.h"

// Derivatives along a direction, which travel forward with the values (torch's forward-mode differentiation): an
// operation of a tensor with a tangent gives a tensor with one. The tangents can be differentiated backward.
namespace tandem {

/// While it lives, each tensor has the tangent beside it: leaves, such as weights. Threads may hold scopes of their own
/// tensors at the same time; within a thread they do not nest. Backward of a tangent must run while it lives, and with
/// c10::AutoFwGradMode off, or torch works out tangents of gradients too. Memory: that of the tangents, not copied.
class TangentScope {
 public:
  TangentScope(std::vector<Tensor> tensors, const std::vector<Tensor>& tangents);
  ~TangentScope();
  TangentScope(const TangentScope&) = delete;
  TangentScope& operator=(const TangentScope&) = delete;

  /// True if the calling thread has one.
  static bool is_open();

 private:
  std::vector<Tensor> tensors_;
};

/// Undefined if it has none.
Tensor tangent_of(const Tensor& tensor);

/// Without its tangent; backward goes on through it.
Tensor primal_of(const Tensor& tensor);

/// `primal` with this tangent of its sizes and type; without one if that is undefined. Backward goes on through both.
/// Only while a TangentScope lives.
Tensor with_tangent(const Tensor& primal, const Tensor& tangent);

/// log softmax along `dim`, whose tangent can be differentiated backward: that of torch 2.11's cannot (nor its
/// softmax's and its cross entropy's), because the formula overwrites what its own backward needs.
Tensor differentiable_log_softmax(const Tensor& x, int64_t dim);

/// The mean over the rows whose target is not -1 of -log softmax(scores)[target], by differentiable_log_softmax(). 0
/// without such a row.
///   scores   [rows, classes] floating      targets  [rows] int64      smoothing  of the labels, from 0 to below 1
Tensor differentiable_cross_entropy(const Tensor& scores, const Tensor& targets, double smoothing = 0);

}  // namespace tandem
