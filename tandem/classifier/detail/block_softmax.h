#pragma once
#include <utility>

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
/// The products live only while their block is worked on, except the first ones, which stay from forward to the first
/// backward as long as they fit into keep_bytes.
class BlockSoftmax {
 public:
  BlockSoftmax(const Tensor& features, const Tensor& weight, const Tensor& targets, int64_t first,
               const Scoring& scoring, const BlockOptions& options);

  /// This rank's numbers of each row of `features`.
  struct Rows {
    Tensor maximum, sum, total;  // [N]; total only for smoothing
  };
  Rows forward(const Tensor& features, const Tensor& weight);

  /// Gradients of this rank's features (its share) and weight. `log_sum` [N] over all ranks; `share` [N]: the loss's
  /// derivative by a row's loss; `classes`: of all ranks. With `update` the weight's is not defined.
  std::pair<Tensor, Tensor> backward(const Tensor& features, const Tensor& weight, const Tensor& log_sum,
                                     const Tensor& share, int64_t classes, const RowUpdate& update = {});

  /// All scores with margin at once, [C_local, N], and what their gradient is turned into: for the naive form.
  Tensor whole_scores(const Tensor& features, const Tensor& weight);
  std::pair<Tensor, Tensor> backward_of_scores(const Tensor& features, const Tensor& weight, const Tensor& gradient);

  const LocalTargets& targets() const { return targets_; }

 private:
  struct Range {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };
  class RowGradients;
  struct Gradients {
    const RowUpdate& update;
    Tensor inputs;                   // [columns, D], what entered the products, in their type
    Tensor features, weight;         // [columns, D] of the inputs; [C_local, D], or of a block
    Tensor along_samples;            // [threads, columns]
    std::vector<double> along_rows;  // the targets' part of it
  };

  bool has_radial() const;
  bool is_kept(Range classes) const;
  double filter() const;
  Tensor padded_rows(const Tensor& row_numbers) const;
  Tensor directions_of(const Tensor& features) const;
  Tensor factors_of(const Tensor& weight, Range classes) const;
  void make_scratch(const Tensor& features);
  Tensor buffer_of(Range classes);
  void multiply(const Tensor& weight, const Tensor& directions, Range classes, Tensor& products) const;
  std::vector<double> target_products(const Tensor& features, const Tensor& weight, const Tensor& products,
                                      Range classes);
  void apply_margins(const std::vector<double>& products, const Tensor& factors, Range classes);
  void put_target_values(Tensor& products, Range classes);
  void add_targets(Running& rows);
  at::TensorOptions product_options(const Tensor& features) const;
  std::vector<double> target_gradients(Range classes, const RowGradients& rows);
  Gradients start_gradients(const Tensor& features, const Tensor& weight, const RowUpdate& update) const;
  void put_target_gradients(Gradients& gradients, Range classes, Tensor& products, Tensor& along_classes,
                            const std::vector<double>& of_values);
  void add_gradients(Gradients& gradients, const Tensor& weight, Range classes, Tensor& products, Tensor& along_classes,
                     const std::vector<double>& of_values);
  void multiply_gradients(Gradients& gradients, const Tensor& weight, const Tensor& products,
                          Tensor& weight_gradient) const;
  Tensor features_gradient(const Gradients& gradients, const Tensor& features) const;
  template <class Body>
  void for_each_block(const Body& body) const;

  Scoring scoring_;
  LocalTargets targets_;
  int64_t rows_, columns_, classes_, block_, num_kept_;
  bool bf16_;
  Tensor kept_, scratch_;
  Tensor inverse_features_, inverse_weight_;  // [N], [C_local]; undefined where not normalised
};

}  // namespace tandem::classifier::detail
