#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tandem/classifier/head.h"
#include "tandem/classifier/softmax_loss.h"

namespace tandem::classifier {

struct HeadOptions {
  int64_t classes = 0;
  int64_t dim = 0;
  Scoring scoring = normalised_softmax(1.0);
  bool naive = false;  // all scores on rank 0, the baseline
  BlockOptions blocks = {};
  std::vector<int64_t> counts = {};  // classes of each rank, in rank order; empty: split_sizes(classes, ranks)
  int64_t shards = 0;  // the loss in training is [ranks], with the same bits for each number of ranks that divides it
  bool differentiates_twice = false;  // the loss has second derivatives: ReplicatedHead, for plain_softmax() and bias
  std::optional<Sampling> sampling = {};  // while training; nothing: all classes are scored
  uint64_t seed = 1;
  bool draws = true;  // false: the weight's values are undefined, for whoever fills it
  at::ScalarType dtype = at::kFloat;
  c10::Device device = c10::DeviceType::CPU;  // of the weight; features and targets must be there

  int64_t columns() const { return dim + (scoring.has_bias ? 1 : 0); }  // of the weight
};

/// A classifier whose classes are split over the ranks: rank r holds counts[r] rows of the weight.
///
/// Each rank brings the features of its own part of the batch; they are gathered, scored against the rank's classes,
/// and the gradient of a rank's features comes back to it by reduce_scatter. Memory a rank: C_local * D elements of
/// weight, the same of gradient, and what sharded_softmax_loss() needs.
class ClassShardedHead : public Head {
 public:
  /// Draws this rank's rows from normal(0, 0.01) by (seed, row), unless told not to: the same matrix for any number of
  /// ranks and on any device.
  /// Throws c10::ValueError when classes or dim is not positive, or counts do not add up to classes.
  ClassShardedHead(const HeadOptions& options, comm::ProcessGroup& group);

  /// With HeadOptions::shards, while training, the mean loss of each rank's rows, [ranks]: ordered_softmax_loss().
  Tensor loss(const Tensor& features, const Tensor& targets, std::span<const int64_t> sizes) override;
  Ranking top_k(const Tensor& features, int64_t k, std::span<const int64_t> sizes) override;
  void run_apart() override;
  void set_softening(double softening) override { options_.scoring.margin.softening = softening; }
  void set_step(int64_t step) override { step_ = step; }
  void set_training(bool training) override { is_training_ = training; }
  void set_row_update(RowUpdate update) override { update_ = std::move(update); }  // not for the naive form
  void set_rows_read(RowsRead read) override { read_ = std::move(read); }

  /// The weight, split by its rows: this rank's, and which of all classes they are.
  parallel::Parameter parameter(std::string name = "head.weight") const override {
    return parallel::Parameter::split(std::move(name), weight_,
                                      {.dim = 0, .first = first_, .count = weight_.size(0), .total = options_.classes});
  }
  const HeadOptions& options() const { return options_; }
  const Tensor& weight() const { return weight_; }
  int64_t first_class() const { return first_; }
  const ClassShardedHead* class_part() const override { return this; }

  /// What is scored of features [n, D]: in the weight's type, and where the scoring has a bias with a column of ones.
  Tensor inputs(const Tensor& features) const;

 private:
  Tensor gather(const Tensor& rows, std::span<const int64_t> sizes);
  void draw();
  struct OwnBest;
  OwnBest best_of_own(const Tensor& rows, int64_t k) const;
  std::optional<ClassSample> sample(const Tensor& targets) const;

  HeadOptions options_;
  comm::ProcessGroup& group_;
  int64_t first_;
  Tensor weight_;
  RowUpdate update_;
  RowsRead read_;
  int64_t step_ = 0;
  bool is_training_ = true;
};

}  // namespace tandem::classifier
