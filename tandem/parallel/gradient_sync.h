#pragma once
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"
#include "tandem/parallel/parameter.h"

namespace tandem::parallel {

/// One of the parts into which the batch of a step is cut. The gradients of a step are the sum over its micro-batches.
struct MicroBatch {
  int64_t index = 0, count = 1;
  int64_t own_samples = 0, samples = 0;  // of the whole batch of the step: this rank's, all ranks'; 0, 0: not told

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
/// the whole batch. They are complete when the last after_backward() has returned. A strategy whose ranks train apart
/// for some steps (is_synchronous()) leaves each rank the gradient of its own samples there. A step that is left
/// before its first backward begins, or after any backward, may be followed by a new step: set .grad to undefined
/// (zero_grad()) first.
///
/// Collective unless a call says otherwise; held(), staleness(), lag(), is_synchronous(), overlap(), owned_gradients()
/// and state() are not.
class GradientSync {
 public:
  virtual ~GradientSync() = default;

  /// The same parameters as this rank holds them: where this object keeps a part of a tensor on each rank, the tensor
  /// is replaced by this rank's parts, with their placements. The optimizer updates these, and clipping, checkpoints
  /// and hashes read them; their gradients are in their .grad.
  virtual std::vector<Parameter> held(std::vector<Parameter> parameters) const { return parameters; }

  virtual void before_forward(const MicroBatch& micro) {}

  /// `loss`: the scalar that backward starts from. `where`: the call site, for error messages; leave it at its default.
  virtual void before_backward(const Tensor& loss, const MicroBatch& micro = {},
                               flight::Where where = flight::Where::current()) = 0;
  virtual void after_backward(const MicroBatch& micro) {}
  virtual void after_step() {}

  /// How many steps this rank may be ahead of the slowest. With s > 0 the gradients of a step are complete when
  /// complete() has returned. It, the optimizer and after_step() then run on another thread, step after step, while
  /// this one goes on to later steps; step t begins here when that thread has ended step t - s - 1.
  ///
  ///   this thread   0 ─ 1 ─ 2 ───── 3 ─          forward, backward            s = 2: step 3 waits for the end of 0
  ///   another           0 ─────────── 1 ─ 2 ─    complete, optimizer, after_step
  virtual int64_t staleness() const { return 0; }
  virtual void complete() {}

  /// How many updates the weights lacked with which this rank's steps began: at most staleness().
  struct Lag {
    int64_t most = 0, sum = 0, steps = 0;  // over `steps` steps
  };
  virtual Lag lag() const { return {}; }

  /// True if the gradients that the step's last after_backward() leaves are those of the whole batch, false if they are
  /// of this rank's own samples.
  virtual bool is_synchronous() const { return true; }

  /// Must be called after held() or state() have been given other values, such as those of a checkpoint: settle(), the
  /// values, loaded().
  virtual void loaded() {}

  /// Waits for what has been on its way since after_step(), such as parameters. unify() does so too.
  virtual void settle() {}

  /// Makes equal on all ranks what they have in common and has come apart since: buffers are those of rank 0 (batch
  /// norm's running statistics). Called before tests and saves.
  virtual void unify() = 0;

  /// The same for what the optimizer keeps beside the parameters (Optimizer::state()); called before unify(). By
  /// default nothing: where all ranks make the same steps, it is equal.
  virtual void unify_optimizer(const std::vector<Parameter>& state) {}
  /// While it is on, the blocks of the model run alone, not one after the other, as memory::rehearse() runs them.
  virtual void run_alone(bool is_on) {}

  /// How long gradients have travelled since the object was made, and how long the step has waited for them.
  struct Overlap {
    double travelled = 0, waited = 0;  // seconds

    /// The share of communication that computation hides: 1 - waited / travelled, from 0 to 1; 1 if nothing travelled.
    double hidden() const;
  };
  virtual Overlap overlap() const { return {}; }

  /// Bytes that an after_backward() needs for a moment, besides the gradients. Collective.
  virtual int64_t exchange_bytes() { return 0; }

  /// Bytes that an after_step() needs for a moment, when no gradients are held but those in memory of this object.
  /// Collective.
  virtual int64_t after_step_bytes() { return 0; }

  /// Bytes that exchanges on other threads need for a moment beside forward and backward. Collective.
  virtual int64_t beside_bytes() { return 0; }

  /// The parameters whose gradients lie in memory of this object, such as buckets: what backward makes for them is
  /// given back at once. None: each gradient stays as backward makes it.
  virtual std::vector<Tensor> owned_gradients() const { return {}; }

  /// What a checkpoint must hold besides the model and the optimizer's state, named "optimizer.<...>": a file of
  /// weights alone leaves it out. The tensors are the object's own.
  virtual std::vector<Parameter> state() const { return {}; }
};

}  // namespace tandem::parallel
