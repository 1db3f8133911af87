#pragma once
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"
#include "tandem/parallel/parameter.h"

namespace tandem::parallel {

/// One of the parts into which the batch of a step is cut. The gradients of a step are the sum over its micro-batches.
struct MicroBatch {
  int64_t index = 0, count = 1;

  bool is_first() const { return index == 0; }
  bool is_last() const { return index + 1 == count; }
};

/// Makes the gradients of a step those of the whole batch, over all ranks of the data axis. A strategy of training in
/// parallel is an implementation of this interface and a row in strategy.h.
///
///   one step of two micro-batches
///   before_forward(0) forward before_backward(0) backward after_backward(0)
///   before_forward(1) forward before_backward(1) backward after_backward(1)   clip, optimizer, zero_grad   after_step
///
/// The gradients are sums over the ranks and over the micro-batches, so the loss of each must be divided by the size of
/// the whole batch. They are complete when the last after_backward() has returned. A step that is left before its first
/// backward begins, or after any backward, may be followed by a new step: set .grad to undefined (zero_grad()) first.
///
/// All calls but state() are collective.
class GradientSync {
 public:
  virtual ~GradientSync() = default;

  virtual void before_forward(const MicroBatch& micro) {}

  /// `loss`: the scalar that backward starts from. `where`: the call site, for error messages; leave it at its default.
  virtual void before_backward(const Tensor& loss, const MicroBatch& micro = {},
                               flight::Where where = flight::Where::current()) = 0;
  virtual void after_backward(const MicroBatch& micro) {}
  virtual void after_step() {}

  /// Gives all ranks the buffers of rank 0 (batch norm's running statistics).
  virtual void sync_buffers() = 0;

  /// The parameters whose gradients lie in memory of this object, such as buckets: what backward makes for them is
  /// given back at once. None: each gradient stays as backward makes it.
  virtual std::vector<Tensor> owned_gradients() const { return {}; }

  /// What a checkpoint must hold besides the model and the optimizer's state. The tensors are the object's own.
  virtual std::vector<Parameter> state() const { return {}; }
};

}  // namespace tandem::parallel
