#pragma once
#include <array>
#include <vector>

#include "tandem/classifier/detail/class_blocks.h"
#include "tandem/classifier/detail/score_passes.h"
#include "tandem/classifier/detail/targets.h"

// What a loss does to the targets' scores. Of a block, only the targets among its classes are touched, so that several
// threads may work on different blocks.
namespace tandem::classifier::detail {

/// Where the products are rounded, computes the targets' products again in the features' type: a target's score decides
/// most of its row's loss.
void multiply_targets(LocalTargets& targets, const ClassBlocks& blocks, const Tensor& features, const Tensor& weight);

/// Reads the targets' products out of a block.
void read_targets(LocalTargets& targets, const Tensor& products, ClassRange classes);

/// From products to scores, and to values with margin. `factors` [classes].
void apply_margins(LocalTargets& targets, const Scoring& scoring, const Tensor& factors, ClassRange classes);

/// Writes the values with margin into a block; where products are rounded, a score so low that it counts for nothing:
/// add_targets() adds the exact one.
void put_target_values(LocalTargets& targets, const ClassBlocks& blocks, Tensor& products, ClassRange classes);

/// Adds the targets that put_target_values() left out to the sums of all classes.
void add_targets(const LocalTargets& targets, Running& rows);

/// The numbers of Shares, one a row, where the targets' gradients are computed.
class RowShares {
 public:
  RowShares(const Tensor& log_sum, const Tensor& share, const Tensor& floor)
      : log_sum_(numbers_of(log_sum)), share_(numbers_of(share)), floor_(numbers_of(floor)) {}
  std::array<double, 3> at(int64_t row) const { return {log_sum_[row], share_[row], floor_[row]}; }

 private:
  std::vector<double> log_sum_, share_, floor_;
};

/// The loss's derivatives by the targets' scores with margin, in the order of the targets.
std::vector<double> target_gradients(LocalTargets& targets, const RowShares& rows, double smoothing,
                                     ClassRange classes);

/// Writes the targets' gradients into a block of gradients, and adds their part along the class's weight to
/// `along_classes` [classes] and along the features to `along_rows` [N]. Where a length is divided out, that part is
/// score times gradient; elsewhere it is what the margin adds.
void put_target_gradients(LocalTargets& targets, const Scoring& scoring, const std::vector<double>& of_values,
                          ClassRange classes, Tensor& products, Tensor& along_classes, std::vector<double>& along_rows);

}  // namespace tandem::classifier::detail
