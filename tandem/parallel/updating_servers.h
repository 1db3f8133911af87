#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/parallel/detail/gradient_tags.h"
#include "tandem/parallel/detail/overlap_clock.h"
#include "tandem/parallel/gradient_sync.h"
#include "tandem/parallel/parameter_server.h"

namespace tandem::parallel {

namespace detail {
class ServedFlat;
}

/// A parameter server that updates: each server (servers.h) holds a part of the trained parameters with the optimizer's
/// state, aggregates the workers' gradients of it and steps; the workers pull weights.
///
///   forward ─ backward ─ push: part r of all gradients to server r ─ aggregate ─ step on part r ─ pull: all weights
///
/// held() gives a server its parts, a few boxes of each parameter, whose .grad has the aggregate, and a worker that
/// does not serve nothing: its optimizer has no state. The aggregates are those of ParameterServer, with the same rule
/// for what a worker pushes, and the weights after a step have the same bits. With servers apart, give them no samples;
/// their own gradients are dropped.
///
/// The parameters of a type lie in one flat tensor, padded to a multiple of the servers' number: the model's parameters
/// become views of it. A parameter without a gradient counts as one whose gradient is zero.
///
/// With `staleness` s, workers need not wait for each other in each step (LateEnds): a worker begins
/// step t with the newest weights that are there, in which the updates of all steps before t - s are. A step's update
/// is still one of the gradients of all workers, in the order of the steps; only the weights at which they were taken
/// differ.
///
///   worker 0   forward 3 at weights 2 ──► push 3 ┐                    server: update 3 of pushes 3 ─► weights 4
///   worker 1   forward 3 at weights 1 ──► push 3 ┘                    s = 2: each begins step 4 at weights 2, 3 or 4
///
/// Collective: construction, the first before_forward() of all and after values_replaced(), wait_for_gradients(),
/// after_step(), unify(). Wire of a step: as ParameterServer. Memory: gradients of a worker S bytes, always, (s + 1) S
/// with staleness; of a server its part of S, always; with staleness another S of weights, and a server's part again;
/// memory() besides. The group must outlive the object. Source: Li et al. 2014, Scaling distributed machine learning
/// with the parameter server (OSDI), whose bounded delay this is; Ho et al. 2013, More effective distributed ML via a
/// stale synchronous parallel parameter server (NIPS).
class UpdatingServers : public GradientSync, public SyncRehearsal, public LateEnds {
 public:
  /// Takes the parameters and buffers of rank 0. `group`: all ranks of the job. Throws SettingsError as
  /// ParameterServer, and for a staleness below 0; c10::ValueError for a parameter that is listed twice, whose
  /// numbers do not lie next to each other, or that is trained and empty.
  UpdatingServers(const std::vector<Parameter>& parameters, std::vector<Tensor> buffers, comm::ProcessGroup& group,
                  const ParameterServerOptions& options = {});
  ~UpdatingServers() override;

  std::vector<Parameter> held(std::vector<Parameter> parameters) const override;
  void before_forward(const MicroBatch& micro) override;
  void before_backward(const Tensor& loss, const MicroBatch& micro = {},
                       flight::Where where = flight::Where::current()) override;
  void after_backward(const MicroBatch& micro) override;
  void after_step() override;
  void values_replaced() override { is_fresh_ = false; }

  /// Broadcasts the buffers of rank 0 to all ranks.
  void unify(const std::vector<Parameter>& optimizer = {}) override;

  Overlap overlap() const override { return clock_.read(); }

  SyncRehearsal* rehearsal() override { return this; }
  SyncMemory memory() override;

  LateEnds* late_ends() override { return flats_.empty() || options_.staleness == 0 ? nullptr : this; }
  int64_t staleness() const override { return options_.staleness; }
  void wait_for_gradients() override;
  Lag lag() const override { return lag_; }

 private:
  /// A step whose backward has ended, and which is not complete.
  struct Push {
    double factor = 1;
    flight::Where where;
  };

  void end_backward(const MicroBatch& micro);
  void push();
  void pull();
  void take_weights();
  void count_lag(int64_t updates);
  int64_t push_bytes() const;
  std::vector<Tensor> owned_gradients() const;
  size_t slot_of(int64_t step) const { return static_cast<size_t>(step % (options_.staleness + 1)); }

  detail::GradientTags tags_;
  std::vector<Tensor> buffers_;
  Servers servers_;
  ParameterServerOptions options_;
  std::vector<std::unique_ptr<detail::ServedFlat>> flats_;  // one a type
  flight::Where where_;
  detail::OverlapClock clock_;
  bool is_fresh_ = false;     // the workers have what the servers have: not after loading
  std::vector<Push> pushes_;  // by slot_of() their step
  int64_t begun_ = 0;         // steps whose backward has ended
  int64_t completed_ = 0;     // of them; of the thread that completes
  int64_t installed_ = 0;     // updates that this rank's weights have
  Lag lag_;
  std::mutex pulled_;    // of what follows, and of the weights that arrive
  int64_t arrived_ = 0;  // updates that the newest weights have
};

}  // namespace tandem::parallel
