#pragma once
#include <memory>

#include "tandem/classifier/class_sharded_head.h"

namespace tandem::classifier {

/// A classifier that every rank holds whole: each rank scores its own rows against all classes.
///
///   rank 0   features [n_0, D] ── weight [C, D] ── scores [C, n_0] ── sum of losses, rows ─┐
///   rank 1   features [n_1, D] ── weight [C, D] ── scores [C, n_1] ── sum of losses, rows ─┴─ one all_reduce: the loss
///
/// Neither features nor scores travel; forward sends two numbers (16 bytes), backward nothing. The weight is a
/// replicated parameter: its gradient is a term of a sum over the ranks, which a parallel::GradientSync adds. Loss,
/// gradients and first weights equal those of ClassShardedHead. For few classes, and for ranks whose steps must not
/// wait for each other's features. Memory a rank: C * D elements of weight, the same of gradient, and what
/// sharded_softmax_loss() needs for its rows.
///
/// With HeadOptions::shards, while training, the loss is the mean of each rank's rows, [ranks], and forward sends each
/// rank's to all; gradients are summed in order by the GradientSync. With differentiates_twice the scores are
/// libtorch's operations, [n_r, C] at once.
class ReplicatedHead : public Head {
 public:
  /// `options.counts` is left out of account. Throws as ClassShardedHead, and c10::ValueError for the naive form and
  /// for sampling, whose classes would differ between the ranks, and for second derivatives of another scoring than a
  /// softmax over inner products. `group`: the ranks that share a batch.
  ReplicatedHead(const HeadOptions& options, comm::ProcessGroup& group);

  Tensor loss(const Tensor& features, const Tensor& targets, std::span<const int64_t> sizes) override;
  Ranking top_k(const Tensor& features, int64_t k, std::span<const int64_t> sizes) override;
  void run_apart() override { is_apart_ = true; }
  void set_softening(double softening) override { own_.set_softening(softening); }
  void set_step(int64_t step) override { own_.set_step(step); }
  void set_training(bool training) override {
    is_training_ = training;
    own_.set_training(training);
  }
  void set_row_update(RowUpdate update) override;
  void set_rows_read(RowsRead read) override { own_.set_rows_read(std::move(read)); }
  parallel::Parameter parameter(std::string name = "head.weight") const override;

 private:
  Tensor own_loss(const Tensor& features, const Tensor& targets);
  Tensor in_order(const Tensor& own);

  comm::ProcessGroup& group_;
  std::unique_ptr<comm::ProcessGroup> alone_;
  int64_t shards_;
  ClassShardedHead own_;  // of a group of one
  bool is_apart_ = false, is_training_ = true;
};

}  // namespace tandem::classifier
