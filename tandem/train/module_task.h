#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tandem/memory/chain.h"
#include "tandem/train/task.h"

namespace tandem::train {

/// A network of your own with a loss of your own: a module that gives each image a score for each class. Every rank
/// that shares a batch holds the network, and works on its own samples.
///
///   rank 0   images [n_0, C, H, W] ── module ── scores [n_0, K] ── loss * n_0 / n ─┐
///   rank 1   images [n_1, C, H, W] ── module ── scores [n_1, K] ── loss * n_1 / n ─┴─ the step sums: the loss
///
/// Loss and gradients are those of one device with the whole batch, for any sizes, if the loss is a mean over samples
/// and the module treats each sample alone: batch normalisation takes its statistics from one rank's samples. All ranks
/// begin with the weights of rank 0; made inside a SeedScope (base/seed_scope.h), they are those of each run.
///
/// Images come in the device and the type of the module's first parameter. If a batch has fewer samples than ranks, a
/// rank calls the module with none: write flatten(1), not view({x.size(0), -1}). SupervisedStepOptions::shards is not
/// supported. Memory: what the module and the loss keep for backward. No call sends a message, but those of a strategy
/// that splits the parameters.
class ModuleTask : public Task {
 public:
  /// Given the scores [n, K] of n > 0 samples and their labels [n], int64, returns the mean loss of the samples, [].
  using Loss = std::function<Tensor(const Tensor& scores, const Tensor& labels)>;

  /// `module` has a member Tensor forward(const Tensor& images). It is one block: a strategy that splits parameters
  /// (fsdp) gathers all of it at a time.
  template <class Module>
  ModuleTask(const std::shared_ptr<Module>& module, Loss loss)
      : ModuleTask(module, memory::chain_of("module", module, [module](const Tensor& x) { return module->forward(x); }),
                   std::move(loss)) {}

  /// `chain`: the same module as blocks, which together use all of its parameters, such as
  /// memory::chain_of(sequential).
  ModuleTask(std::shared_ptr<torch::nn::Module> module, memory::Chain chain, Loss loss);

  /// This rank's term of the mean loss. Throws c10::ValueError if the module does not give a row of scores for each
  /// image, or the loss not one number; DataError for a label that is no class of the module.
  Tensor loss(const data::Batch& batch, std::span<const int64_t> sizes) override;
  parallel::Axes summed_along() const override { return parallel::kBatchAxes; }
  void run_apart() override {}
  memory::Chain chain(const data::Batch& batch, std::span<const int64_t> sizes) override;

  /// The scores, on the CPU.
  Tensor embed(const data::Batch& batch) override;

  /// The classes with the k highest scores and their softmax. Throws as loss(), and c10::ValueError if the module gives
  /// fewer than k scores.
  Answers evaluate(const data::Batch& batch, int64_t k, std::span<const int64_t> sizes) override;
  Ranking predict(const data::Batch& batch, int64_t k, std::span<const int64_t> sizes) override;

  void set_training(bool training) override;
  memory::Chain* replicated_chain() override { return &chain_; }
  std::vector<Parameter> parameters() const override;
  std::vector<Parameter> buffers() const override;

 private:
  Tensor input(const Tensor& images) const;
  Tensor scores_of(const data::Batch& batch) const;
  Tensor term(const Tensor& scores, const Tensor& labels, std::span<const int64_t> sizes) const;

  std::shared_ptr<torch::nn::Module> module_;
  memory::Chain chain_;
  Loss loss_;
  c10::Device device_ = c10::DeviceType::CPU;
  at::ScalarType type_ = at::kFloat;
};

}  // namespace tandem::train
