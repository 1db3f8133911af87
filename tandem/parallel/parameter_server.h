#pragma once
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"
#include "tandem/parallel/aggregation.h"
#include "tandem/parallel/detail/gradient_arrivals.h"
#include "tandem/parallel/detail/overlap_clock.h"
#include "tandem/parallel/gradient_sync.h"

namespace tandem::parallel {

struct ParameterServerOptions {
  const Aggregate* aggregate = &aggregates().front();  // a row of aggregates(), or your own
  int servers = 0;              // the last so many ranks only serve, and bring no gradients; 0: each rank does both
  bool servers_update = false;  // the servers step, and workers pull weights: UpdatingServers
  int64_t staleness = 0;        // of UpdatingServers: how many steps a worker may be ahead of the slowest
};

/// Keeps replicas of a model equal by servers (servers.h): each rank trains, and serves a part of every message.
///
///   forward ─ backward ─ push: part r of each gradient to rank r ─ aggregate ─ pull: all parts ─ step
///
/// With `servers` the others train, the workers. A server's own gradients are dropped, and it holds no replica: its
/// parameters are left as they are, and belong to no optimizer (held()). Give it no samples.
///
/// After the last backward of a step the gradients travel in messages of 1 MiB, a larger tensor as one, through
/// aggregate_(). With the sum, the gradients are those of DistributedDataParallel: on thread-ranks bit by bit. With the
/// others, each rank's gradient is multiplied by samples / own_samples of the MicroBatch (by the number of workers
/// if they are not told): it is an estimate of the whole batch's gradient, and so is the aggregate. A worker without
/// samples of a batch pushes zeros. A group of one keeps its gradients.
///
/// Each parameter that requires a gradient must get one in each last backward of a step, as in DistributedDataParallel,
/// with the same error on all ranks. A step in which none is missing costs no message. Parameters that require none are
/// broadcast from rank 0 and then left alone.
///
/// Collective: construction, the last after_backward() of a step, unify(). Wire: 2 (N - 1) S a step over N ranks for S
/// bytes of gradients; with servers apart 2 W S over W workers, and with several of them a number more to each rank.
/// Memory: memory(). The group must outlive the object. Source: Li et al. 2014, Scaling distributed machine
/// learning with the parameter server (OSDI).
class ParameterServer : public GradientSync, public SyncRehearsal {
 public:
  /// Broadcasts the parameters and buffers of rank 0 to all ranks. Throws SettingsError if the group has fewer
  /// workers than the aggregate needs, or none; c10::ValueError if a tensor is listed twice.
  ParameterServer(const std::vector<Parameter>& parameters, std::vector<Tensor> buffers, comm::ProcessGroup& group,
                  const ParameterServerOptions& options = {});

  std::vector<Parameter> held(std::vector<Parameter> parameters) const override;
  void before_backward(const Tensor& loss, const MicroBatch& micro = {},
                       flight::Where where = flight::Where::current()) override;
  void after_backward(const MicroBatch& micro) override;

  /// Broadcasts the buffers of rank 0 to all ranks.
  void unify(const std::vector<Parameter>& optimizer = {}) override;

  SyncRehearsal* rehearsal() override { return this; }
  SyncMemory memory() override;
  Overlap overlap() const override { return clock_.read(); }

 private:
  void exchange(const MicroBatch& micro);
  std::vector<Tensor> prepared_gradients(const MicroBatch& micro) const;
  bool send(const std::vector<Tensor>& gradients);

  std::vector<Tensor> parameters_, buffers_;  // parameters: those that are trained
  Servers servers_;
  ParameterServerOptions options_;
  detail::GradientArrivals arrivals_;
  flight::Where where_;
  detail::OverlapClock clock_;
};

}  // namespace tandem::parallel
