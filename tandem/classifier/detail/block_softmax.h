#pragma once
#include <algorithm>
#include <utility>
#include <vector>

#include "tandem/classifier/detail/lanes.h"
#include "tandem/classifier/detail/score_passes.h"
#include "tandem/classifier/detail/targets.h"
#include "tandem/classifier/softmax_loss.h"

namespace tandem::classifier::detail {

/// One loss of one rank's classes, block by block: forward() once, then backward() as often as asked.
///
///   forward    block of weight ── GEMM ── products [c, N] ── maximum, sum of exp, target of each row
///   backward   block of weight ── GEMM ── products ── their gradient ──┬── GEMM ── adds to features' gradient [N, D]
///                                                                      └── GEMM ── weight's gradient of the block
///
/// Each thread works on a block of its own, in turn, so that none waits for another before the end; the sums over the
/// classes are kept for each and added in their order. The products live only while their block is worked on, except
/// the first ones, which stay from forward to the first backward as long as they fit into keep_bytes. With a sample
/// only its classes are worked on, whose rows are gathered block by block; the weight's gradient is then sparse, or
/// goes to the update by ids.
class BlockSoftmax {
 public:
  BlockSoftmax(const Tensor& features, const Tensor& weight, const Tensor& targets, int64_t first,
               const Scoring& scoring, const BlockOptions& options, const ClassSample* sample = nullptr);

  /// This rank's numbers of each row of `features`.
  struct OwnNumbers {
    Tensor maximum, sum, total;  // [N]; total only for smoothing
  };
  OwnNumbers forward(const Tensor& features, const Tensor& weight);

  /// Gradients of this rank's features (its share) and weight. `log_sum` [N] over all ranks; `share` [N]: the loss's
  /// derivative by a row's loss; `classes`: of all ranks. With `update` the weight's is not defined.
  std::pair<Tensor, Tensor> backward(const Tensor& features, const Tensor& weight, const Tensor& log_sum,
                                     const Tensor& share, int64_t classes, const RowUpdate& update = {});

  /// All scores with margin at once, [C_local, N], and what their gradient is turned into: for the naive form.
  Tensor whole_scores(const Tensor& features, const Tensor& weight);
  std::pair<Tensor, Tensor> backward_of_scores(const Tensor& features, const Tensor& weight, const Tensor& gradient);

  const LocalTargets& targets() const { return targets_; }

 private:
  struct Range {  // of the classes that are scored
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };
  struct OwnRows {
    Tensor exact, entering;  // the weight's, and as they enter the products, in their type
  };
  struct Lane {
    int64_t index;
    Tensor products;  // [block, columns], of those that are not kept
    Tensor rounded;   // [block, D] in bfloat16: rows of the weight, then of its gradient
  };
  class RowGradients;
  struct Gradients {
    const RowUpdate& update;
    Tensor inputs;                   // [columns, D], what entered the products, in their type
    Tensor features, weight;         // [lanes, columns, D] of the inputs; [scored, D], or of the lanes' blocks
    Tensor along_samples;            // [lanes, columns]
    std::vector<double> along_rows;  // the targets' part of it
  };

  bool has_radial() const;
  bool is_rounded() const { return product_type_ == at::kBFloat16; }
  bool is_kept(Range classes) const;
  double filter() const;
  Tensor padded_rows(const Tensor& row_numbers) const;
  Tensor directions_of(const Tensor& features) const;
  Tensor factors_of(Range classes, const at::TensorOptions& options) const;
  std::vector<Lane> make_lanes(const Tensor& features) const;
  std::vector<Range> blocks() const;
  Tensor buffer_of(const Lane& lane, Range classes) const;
  Rows rows_of(Range classes) const;
  double log_weight_of(Range classes) const;
  Tensor entering(const Tensor& own_weight, const Lane& lane) const;
  Tensor measure(const Tensor& own_weight, const Lane& lane, Range classes);
  void multiply_targets(const Tensor& features, const Tensor& weight);
  void read_targets(const Tensor& products, Range classes);
  void apply_margins(const Tensor& factors, Range classes);
  void put_target_values(Tensor& products, Range classes);
  void add_others(Running& rows, const Running& others) const;
  void add_targets(Running& rows);
  at::TensorOptions product_options(const Tensor& features) const;
  std::vector<double> target_gradients(Range classes, const RowGradients& rows);
  Gradients start_gradients(const Tensor& features, const Tensor& weight, const RowUpdate& update) const;
  void put_target_gradients(Gradients& gradients, Range classes, Tensor& products, Tensor& along_classes,
                            const std::vector<double>& of_values);
  void add_gradients(Gradients& gradients, int64_t lane, const OwnRows& own, Range classes, Tensor& products,
                     Tensor& along_classes, const std::vector<double>& of_values);
  void multiply_gradients(const Gradients& gradients, int64_t lane, OwnRows own, const Tensor& products,
                          const Tensor& along_classes, Tensor& weight_gradient) const;
  Tensor spread(const Tensor& gradient, const Tensor& weight) const;
  Tensor features_gradient(const Gradients& gradients, const Tensor& features) const;

  /// body(lane, classes of a block)
  template <class Body>
  void for_each_block(const Tensor& features, const Body& body) const {
    const auto ranges = blocks();
    const auto lanes = make_lanes(features);
    run_lanes(num_lanes_, [&](int lane) {
      for (size_t i = lane; i < ranges.size(); i += lanes.size()) body(lanes[lane], ranges[i]);
    });
  }

  Scoring scoring_;
  LocalTargets targets_;
  Tensor ids_;  // [scored], where not all classes are
  int64_t num_targets_ = 0;
  double log_weight_ = 0;
  int64_t rows_, classes_, columns_, block_, num_kept_;
  int num_lanes_;
  at::ScalarType product_type_;
  Tensor kept_;
  Tensor inverse_features_, inverse_weight_;  // [N], [scored]; undefined where not normalised
};

}  // namespace tandem::classifier::detail
