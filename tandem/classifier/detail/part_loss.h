#pragma once
#include <memory>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/classifier/scoring.h"
#include "tandem/classifier/softmax_loss.h"

// The softmax loss in passes, for classes whose parts lie where others wait: a part scores rows before it knows what
// the other parts say, and works out its weight's gradient whenever there is time.
//
//   part      rows [n, D] ── scores() ── for each row 3 numbers, and what the part gives to its gradient, [n, D]
//   home      of all parts ── merge() ── loss, the rows' gradient, the logarithm of the sum over all classes [n]
//   part      that logarithm ── add_class_gradient()
//
// Products a part: one for the scores, one for the rows' gradient, then the scores again and the weight's gradient: as
// many as sharded_softmax_loss() makes without keep_bytes. The sums of exp(score - maximum) * d score / d row of the
// parts become the gradient when they are weighed by their maxima, so that one message a part is all that a home needs.
// Source: the passes of Yeung et al. 2024, Balancing Pipeline Parallelism with Vocabulary Parallelism
// (arXiv:2411.05288), which need barriers, and a softmax without margin; the sums: own.
namespace tandem::classifier {

namespace detail {
class BlockSoftmax;
}

/// What a part says of some rows.
struct PartScores {
  Tensor numbers;      // [3, n]: maximum, sum of exp(score - maximum), the target's score with margin, or where the
                       // target is another part's the lowest number there is; [4, n]: with smoothing, sum of scores
  Tensor of_scores;    // [n, D]: but for the targets, sum of exp(score - maximum) * d score / d row
  Tensor evenly;       // [n, D]: but for the targets, sum of d score / d row; undefined without smoothing
  Tensor target_rows;  // [t] int64: those whose target the part has
  Tensor of_targets;   // [t, D]: d of the target's score with margin / d row

  /// All but the numbers, in this order: of scores, target rows, of targets, evenly if it is defined.
  std::vector<Tensor> sums() &&;
};

/// One part of the classes, and some rows.
class PartLoss {
 public:
  /// As sharded_softmax_loss(), with the same errors; nothing is kept of the products, whatever `blocks` says. Memory
  /// from here on: the features, 4 bytes a class (normalised weight) and some numbers a row.
  PartLoss(Tensor features, Tensor weight, const Tensor& targets, int64_t first, const Scoring& scoring,
           const BlockOptions& blocks);
  ~PartLoss();

  int64_t counted() const;  // rows with a target, of any part

  /// Call it once. Memory: of each thread a block and a gradient of the features; then [N, D], until release().
  void score();

  /// Of rows begin..end - 1, after score().
  PartScores scores_of(int64_t begin, int64_t end) const;

  /// Forgets all scores but those of some rows, of which scores_of() may still be asked.
  void release(int64_t begin, int64_t end);

  /// Adds to the weight's .grad, block by block, with no second gradient in memory. `log_sum`, `share` [N]: as
  /// MergedRows has them for all rows; the loss's derivative by a row's loss. `classes`: of all parts.
  void add_class_gradient(const Tensor& log_sum, const Tensor& share, int64_t classes);

 private:
  std::unique_ptr<detail::BlockSoftmax> softmax_;
  Tensor features_, weight_;
  int64_t begin_ = 0;  // of the rows that scores_ has
  PartScores scores_;
};

/// From the parts to the loss of some rows.
class PartsMerge {
 public:
  /// `numbers` [parts, 3 or 4, n]: of all parts. `share` [n]: 1 / counted rows of all, and 0 for rows that are left
  /// out. Throws c10::IndexError for a target that no part has.
  PartsMerge(const Tensor& numbers, const Tensor& targets, const Tensor& share, double smoothing, int64_t classes);

  const Tensor& loss() const { return loss_; }        // []: of these rows, of the mean over all
  const Tensor& log_sum() const { return log_sum_; }  // [n]

  /// Adds a part to the rows' gradient, which is that of the loss times `factor`. In the order of the parts.
  void add(const PartScores& part, double factor);
  Tensor take_gradient() { return std::move(gradient_); }  // [n, D]

 private:
  Tensor share_, target_;
  double smoothing_;
  int64_t classes_;
  Tensor loss_, log_sum_, gradient_;
};

}  // namespace tandem::classifier
