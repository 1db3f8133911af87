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
  void complete() override { sync_->complete(); }
  void after_step() override { sync_->after_step(); }
  int64_t staleness() const override { return sync_->staleness(); }
  Lag lag() const override { return sync_->lag(); }
  void loaded() override { sync_->loaded(); }
  void settle() override { sync_->settle(); }
  bool is_synchronous() const override { return sync_->is_synchronous(); }
  void unify() override { sync_->unify(); }
  void unify_optimizer(const std::vector<Parameter>& state) override { sync_->unify_optimizer(state); }
  void run_alone(bool is_on) override { sync_->run_alone(is_on); }
  int64_t exchange_bytes() override { return sync_->exchange_bytes(); }
  int64_t beside_bytes() override { return sync_->beside_bytes(); }
  Overlap overlap() const override { return sync_->overlap(); }
  std::vector<Tensor> owned_gradients() const override { return sync_->owned_gradients(); }
  std::vector<Parameter> state() const override { return sync_->state(); }

 private:
  std::unique_ptr<GradientSync> sync_;
  ChainReplicas replicas_;
};

}  // namespace tandem::parallel
