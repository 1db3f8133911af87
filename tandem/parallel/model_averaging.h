#pragma once
#include <optional>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"
#include "tandem/parallel/detail/gradient_tags.h"
#include "tandem/parallel/gradient_sync.h"

namespace tandem::parallel {

/// SGD with Nesterov's momentum on where the ranks have gone between two meetings.
struct OuterNesterov {
  double learning_rate = 0.7, momentum = 0.9;
};

struct ModelAveragingOptions {
  int64_t every = 16;                       // steps from one meeting to the next
  std::optional<OuterNesterov> outer = {};  // nothing: the ranks go on from the mean
  bool starts_equal = false;                // the model is equal on all ranks already: nothing is broadcast
};

/// Trains a model on each rank, on the rank's own samples, and replaces the models by one every few steps:
///
///            every = 3                                                        unify()
///   rank 0   w ─ step ─ step ─ step ─┬─ mean ─ step ─ step ─ step ─┬─ mean ─ step ─┬─ mean
///   rank 1   w ─ step ─ step ─ step ─┘         step ─ step ─ step ─┘         step ─┘
///
/// The mean weighs each rank by the samples that it has trained on since the last meeting. Without `outer` all ranks go
/// on from the mean: local SGD (Stich 2018, arXiv:1805.09767; the weights: McMahan et al. 2016, arXiv:1602.05629); with
/// every = 1 and plain SGD that is a step of all ranks together, up to rounding. With `outer` they go on from a step of
/// an outer optimizer, whose gradient is the way from the mean back to the last meeting's weights w: DiLoCo (Douillard
/// et al. 2023, arXiv:2311.08105, algorithm 1):
///
///   delta = w - mean        velocity = momentum * velocity + delta
///                           w        = w - learning_rate * (delta + momentum * velocity)
///
/// - Gradients: a rank's gradient is that of its own mean loss; after_backward() multiplies by samples / own_samples of
///   the MicroBatch (by the number of ranks, if they are not told). A rank without samples of a batch has no gradient
///   in that step and stays where it is. Samples that the loss leaves out count.
/// - Only parameters that every rank holds whole are averaged. The gradients of others, such as split classes, are left
///   as they are: they train in every step.
/// - The optimizer's state is each rank's own, and so are buffers: unify() averages those of floating point, and takes
///   other buffers from rank 0. A meeting of `every` steps leaves both alone.
/// - A step that is left out (no after_step()) counts for nothing.
///
/// Collective: construction, after_step(), unify(). Wire over N ranks: a meeting 2 (N - 1) S for S bytes of
/// trained parameters, nothing in the steps between. Memory: none without `outer`; with it 2 S, and one message of 1
/// MiB or the largest tensor while the ranks meet. The group must outlive the object.
class ModelAveraging : public GradientSync, public SyncRehearsal {
 public:
  /// Broadcasts rank 0's values to all ranks, unless they are equal. `parameters`: held whole by every rank; those that
  /// require no gradient are left alone from then on. Throws SettingsError: `every` below 1, `outer` out of its range;
  /// c10::ValueError if a tensor is listed twice.
  ModelAveraging(const std::vector<Parameter>& parameters, std::vector<Tensor> buffers, comm::ProcessGroup& group,
                 const ModelAveragingOptions& options = {});

  void before_forward(const MicroBatch& micro) override;
  void before_backward(const Tensor& loss, const MicroBatch& micro = {},
                       flight::Where where = flight::Where::current()) override {}
  void after_backward(const MicroBatch& micro) override;
  void after_step() override;
  void values_replaced() override;

  /// Meets now, if a step has been made since the last meeting. Collective.
  void meet();

  /// A meeting, if a step has been made since the last one, and what meetings leave alone.
  void unify(const std::vector<Parameter>& optimizer = {}) override;

  /// The outer velocity. The weights of the last meeting are those of the model itself when it is saved.
  std::vector<Parameter> state() const override;

  bool is_synchronous() const override { return false; }
  SyncRehearsal* rehearsal() override { return this; }
  SyncMemory memory() override;

 private:
  /// Samples that were trained on.
  struct Samples {
    int64_t own = 0, all = 0;

    void add(const Samples& more);
    double share() const { return static_cast<double>(own) / static_cast<double>(all); }
  };

  void step_outward();
  void average(const std::vector<Tensor>& tensors, const Samples& samples);
  void average_optimizer(const std::vector<Parameter>& state);

  std::vector<Parameter> parameters_;  // those that are trained
  detail::GradientTags tags_;
  std::vector<Tensor> buffers_;
  comm::ProcessGroup& group_;
  ModelAveragingOptions options_;
  std::vector<Tensor> met_, velocity_;  // of `outer`: the weights of the last meeting, the momentum
  int64_t steps_ = 0;                   // since the last meeting
  Samples in_step_, in_round_, apart_;  // of this step, since the last meeting, since the last unify()
};

}  // namespace tandem::parallel
