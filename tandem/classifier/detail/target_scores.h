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

/// Reads the targets' factors out of `factors` [classes] and their products out of a block, which is undefined where
/// they are known. The host waits for a device once.
void read_targets(LocalTargets& targets, const Tensor& products, const Tensor& factors, ClassRange classes);

/// From products to scores, and to values with margin.
void apply_margins(LocalTargets& targets, const Scoring& scoring, ClassRange classes);

/// Writes the values with margin into a block; where products are rounded, a score so low that it counts for nothing:
/// add_targets() adds the exact one.
void put_target_values(LocalTargets& targets, const ClassBlocks& blocks, Tensor& products, ClassRange classes);

/// Adds the targets that put_target_values() left out to the sums of all classes.
void add_targets(const LocalTargets& targets, Running& rows);

/// The numbers of Shares, one a row, where the targets' gradients are computed.
class RowShares {
 public:
  RowShares(const Tensor& log_sum, const Tensor& share, const Tensor& floor);
  std::array<double, 3> at(int64_t row) const { return {all_[row], all_[row + rows_], all_[row + 2 * rows_]}; }

 private:
  int64_t rows_;
  std::vector<double> all_;
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
