#pragma once
#include <memory>
#include <vector>

#include "tandem/comm/process_group.h"
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
/// Collective: construction, the first before_forward() of all and after a load, the last after_backward() of a step,
/// after_step(), unify(). Wire of a step: as ParameterServer. Memory: gradients of a worker S bytes, always; of a
/// server its part of S, always; exchange_bytes() besides. The group must outlive the object. Source: Li et al. 2014,
/// Scaling distributed machine learning with the parameter server (OSDI).
class UpdatingServers : public GradientSync {
 public:
  /// Takes the parameters and buffers of rank 0. Throws SettingsError as ParameterServer; c10::ValueError for a
  /// parameter whose numbers do not lie next to each other.
  UpdatingServers(const std::vector<Parameter>& parameters, std::vector<Tensor> buffers, comm::ProcessGroup& group,
                  const ParameterServerOptions& options = {});
  ~UpdatingServers() override;

  std::vector<Parameter> held(std::vector<Parameter> parameters) const override;
  void before_forward(const MicroBatch& micro) override;
  void before_backward(const Tensor& loss, const MicroBatch& micro = {},
                       flight::Where where = flight::Where::current()) override;
  void after_backward(const MicroBatch& micro) override;
  void after_step() override;

  /// Broadcasts the buffers of rank 0 to all ranks.
  void unify() override;

  int64_t exchange_bytes() override;
  Overlap overlap() const override { return clock_.read(); }
  std::vector<Tensor> owned_gradients() const override;

 private:
  void push(const MicroBatch& micro);
  void pull();

  std::vector<Tensor> buffers_;
  Servers servers_;
  ParameterServerOptions options_;
  std::vector<std::unique_ptr<detail::ServedFlat>> flats_;  // one a type
  flight::Where where_;
  detail::OverlapClock clock_;
  bool is_fresh_ = false;  // the workers have what the servers have: not after loading
};

}  // namespace tandem::parallel
