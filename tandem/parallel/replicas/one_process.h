#pragma once
#include <memory>

#include "tandem/parallel/gradient_sync.h"
#include "tandem/parallel/replicas/chain_replicas.h"

namespace tandem::parallel {

struct OneProcessOptions {
  int replicas = 1;  // that share each batch
};

/// The strategy of a world of one rank whose model runs on replicas in its process (ChainReplicas): what the replicas
/// make is summed inside of backward, and `sync`, for the one rank, does all else.
class OneProcessReplicas : public GradientSync {
 public:
  OneProcessReplicas(std::unique_ptr<GradientSync> sync, memory::Chain* chain, const OneProcessOptions& options)
      : sync_(std::move(sync)), replicas_(chain, options.replicas) {}

  std::vector<Parameter> held(std::vector<Parameter> parameters) const override {
    return sync_->held(std::move(parameters));
  }
  void before_forward(const MicroBatch& micro) override { sync_->before_forward(micro); }
  void before_backward(const Tensor& loss, const MicroBatch& micro, flight::Where where) override {
    sync_->before_backward(loss, micro, where);
  }
  void after_backward(const MicroBatch& micro) override { sync_->after_backward(micro); }
  void after_step() override { sync_->after_step(); }
  bool is_synchronous() const override { return sync_->is_synchronous(); }
  void wait() override { sync_->wait(); }
  void unify(const std::vector<Parameter>& optimizer) override { sync_->unify(optimizer); }
  void values_replaced() override { sync_->values_replaced(); }
  Overlap overlap() const override { return sync_->overlap(); }
  std::vector<Parameter> state() const override { return sync_->state(); }
  SyncRehearsal* rehearsal() override { return sync_->rehearsal(); }
  LateEnds* late_ends() override { return sync_->late_ends(); }

 private:
  std::unique_ptr<GradientSync> sync_;
  ChainReplicas replicas_;
};

}  // namespace tandem::parallel
