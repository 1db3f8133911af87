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

/// What a strategy needs for a moment in a step, besides the gradients.
struct SyncMemory {
  int64_t exchange = 0;    // bytes, in an after_backward()
  int64_t beside = 0;      // of exchanges on other threads, beside forward and backward
  int64_t after_step = 0;  // in an after_step(), when no gradients are held but those of `owned_gradients`
  /// The parameters whose gradients lie in memory of the strategy, such as buckets: what backward makes for them is
  /// given back at once. The gradients of others stay as backward makes them.
  std::vector<Tensor> owned_gradients = {};
};

/// The part of a strategy by which the memory of a step is predicted (memory/rehearsal.h).
class SyncRehearsal {
 public:
  virtual ~SyncRehearsal() = default;

  /// Collective.
  virtual SyncMemory memory() = 0;

  /// While it is on, the blocks of the model run alone, not one after the other.
  virtual void run_alone(bool is_on) {}
};

/// The part of a strategy whose steps end on another thread, step after step, while this one goes on to later ones:
/// step t begins here when that thread has ended step t - staleness() - 1.
///
///   this thread   0 ─ 1 ─ 2 ───── 3 ─          forward, backward             staleness() 2: step 3 waits for the end
///   another           0 ─────────── 1 ─ 2 ─    wait_for_gradients, optimizer, after_step                       of 0
class LateEnds {
 public:
  virtual ~LateEnds() = default;

  /// How many steps this rank may be ahead of the slowest: 1 or more.
  virtual int64_t staleness() const = 0;

  /// When it returns, the gradients of the oldest step under way are complete. Collective.
  virtual void wait_for_gradients() = 0;

  /// How many updates the weights lacked with which this rank's steps began: at most staleness().
  struct Lag {
    int64_t most = 0, sum = 0, steps = 0;  // over `steps` steps
  };
  virtual Lag lag() const = 0;
};

/// Makes the gradients of a step those of the whole batch, over all ranks of the data axis. A strategy of training in
/// parallel is an implementation of this interface and a row in strategy.h.
///
///   one step of two micro-batches
///   before_forward(0) forward before_backward(0) backward after_backward(0)
///   before_forward(1) forward before_backward(1) backward after_backward(1)   clip, optimizer, zero_grad   after_step
///
/// The gradients are sums over the ranks and over the micro-batches, so the loss of each must be divided by the size of
/// the whole batch. They are complete when the last after_backward() has returned (but see late_ends()). A strategy
/// whose ranks train apart for some steps (is_synchronous()) leaves each rank the gradient of its own samples there. A
/// step that is left before its first backward begins, or after any backward, may be followed by a new step: set .grad
/// to undefined (zero_grad()) first.
///
/// Collective unless a call says otherwise; held(), is_synchronous(), overlap(), state(), and which parts there are,
/// are not.
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

  /// In place of the last before_backward(), its backward and after_backward(): sums the gradients that lie in .grad,
  /// of a step whose backwards have all been called as ones that are not the last. For steps that order their backwards
  /// themselves, such as pipelines. Throws c10::NotImplementedError where Strategy::takes_gradients is false.
  virtual void take_gradients(flight::Where where = flight::Where::current());

  /// Before that, as often as wanted: those of some parameters are complete, and may travel while other backwards run.
  virtual void start_to_take(const std::vector<Tensor>& complete, flight::Where where = flight::Where::current()) {}

  virtual void after_step() {}

  /// True if the gradients that the step's last after_backward() leaves are those of the whole batch, false if they are
  /// of this rank's own samples.
  virtual bool is_synchronous() const { return true; }

  /// Waits for what has been on its way since after_step(), such as parameters: held() and state() may then be read.
  /// unify() does so too.
  virtual void wait() {}

  /// Makes equal on all ranks what they have in common and has come apart since: the models of ranks that trained
  /// apart, and with them `optimizer`, what the optimizer keeps beside the parameters (Optimizer::state()). Buffers are
  /// those of rank 0 (batch norm's running statistics). Called before tests and saves.
  virtual void unify(const std::vector<Parameter>& optimizer = {}) = 0;

  /// Must be called after a wait() and other values for held() or state(), such as those of a checkpoint.
  virtual void values_replaced() {}

  /// How long gradients have travelled since the object was made, and how long the step has waited for them.
  struct Overlap {
    double travelled = 0, waited = 0;  // seconds

    /// The share of communication that computation hides: 1 - waited / travelled, from 0 to 1; 1 if nothing travelled.
    double hidden() const;
  };
  virtual Overlap overlap() const { return {}; }

  /// What a checkpoint must hold besides the model and the optimizer's state, named "optimizer.<...>": a file of
  /// weights alone leaves it out. The tensors are the object's own.
  virtual std::vector<Parameter> state() const { return {}; }

  /// null: it needs nothing for a moment.
  virtual SyncRehearsal* rehearsal() { return nullptr; }

  /// null: a step ends before the next begins.
  virtual LateEnds* late_ends() { return nullptr; }
};

}  // namespace tandem::parallel
