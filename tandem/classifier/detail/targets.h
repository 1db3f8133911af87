#pragma once
#include <vector>

#include "tandem/classifier/detail/class_blocks.h"
#include "tandem/classifier/detail/score_passes.h"
#include "tandem/classifier/scoring.h"
#include "tandem/kernels/gpu_kernels.h"

namespace tandem::classifier::detail {

using kernels::TargetNumbers;

/// The rows whose targets are this rank's classes, and what a loss does to their scores. Which rows these are the host
/// knows; their numbers lie where the features are, and nothing here waits for a device, unless the targets are there.
///
/// Functions with `classes` touch the targets among these alone, so that several threads may work on different blocks.
/// `block`: products or their gradients [classes, columns]; `factors` [classes].
class LocalTargets {
 public:
  /// `first`: the rank's first class. `scored`: the classes that are scored, on the CPU, beginning with the targets in
  /// rising order; undefined: all. Throws c10::ValueError for a target that is not scored.
  LocalTargets(const Tensor& targets, int64_t first, const Tensor& features, const Tensor& weight,
               const Scoring& scoring, const Tensor& scored = {});

  int64_t counted() const { return counted_; }                // rows with a target, over all ranks
  const std::vector<int64_t>& rows() const { return rows_; }  // of each target, in the order of the classes

  /// Of each target, on the features' device: [t] int64, and [t] float64.
  Tensor row_ids() const { return ids_on_device(0); }
  Tensor class_ids() const { return ids_on_device(3); }  // counted from the rank's first
  Tensor numbers(double TargetNumbers::*number) const;

  /// Where the products are rounded, computes the targets' products again in the features' type: a target's score
  /// decides most of its row's loss.
  void multiply(const ClassBlocks& blocks, const Tensor& features, const Tensor& weight);

  /// From a block's products, which are undefined where they are known, to scores, and to values with margin.
  void score(const Tensor& block, const Tensor& factors, ClassRange classes, const Scoring& scoring);

  /// Writes the values with margin into a block; if `leaves_out`, a score so low that it counts for nothing:
  /// add_left_out() adds the exact one.
  void put_values(const Tensor& block, const Tensor& factors, ClassRange classes, bool leaves_out);
  void add_left_out(Running& rows) const;

  /// Writes zeros.
  void clear(const Tensor& block, ClassRange classes) const;

  /// line[row] = value. `line` [N].
  void write_values(const Tensor& line) const;

  /// The loss's derivatives by the values: from what their rows say, or from a block of derivatives by scores.
  void differentiate(const Shares& shares, double smoothing, ClassRange classes);
  void read_gradients(const Tensor& block, ClassRange classes);

  /// Writes the targets' gradients into a block of gradients, and adds their part along the class's weight to
  /// `along_classes` [classes] and along the features to `along_rows` [N] in float64. Where a length is divided out,
  /// that part is score times gradient; elsewhere it is what the margin adds.
  void put_gradients(const Tensor& block, const Scoring& scoring, ClassRange classes, const Tensor& along_classes,
                     const Tensor& along_rows);

  /// The same without a block: `along_rows` has only what a margin depends on the features' lengths by.
  void add_along(const Scoring& scoring, ClassRange classes, const Tensor& along_classes, const Tensor& along_rows);

  /// Add what the targets give to gradients. `weight`, `of_weight` [classes, D]; `inputs`, `of_inputs` [N or more, D]:
  /// what entered the products.
  void add_to_features(const Tensor& weight, ClassRange classes, const Tensor& of_inputs) const;
  void add_to_weight(const Tensor& inputs, ClassRange classes, const Tensor& of_weight) const;

 private:
  struct Own {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };
  Own own_of(ClassRange classes) const;
  Own starts_of(Own targets) const;  // their classes
  Own all() const { return {0, static_cast<int64_t>(rows_.size())}; }
  void place(const Tensor& scored);
  void lay_out(const Tensor& features);
  void measure(const Tensor& features, const Tensor& weight, const Scoring& scoring);
  Tensor ids_on_device(int line) const;
  const int64_t* ids(int line) const { return ids_.const_data_ptr<int64_t>() + line * line_; }
  TargetNumbers* numbers_from(int64_t target) const;
  template <class T, class S>
  kernels::TargetEntries<T, S> entries(const Tensor& block, const Tensor& factors, ClassRange classes, Own own) const;

  int64_t counted_ = 0;
  std::vector<int64_t> rows_, classes_, places_;  // place: of the class among those that are scored
  std::vector<int64_t> starts_;                   // of the targets of one class, and the end
  int64_t line_ = 0;                              // ids in a line
  Tensor ids_;                                    // [4, line]: rows, places, starts, classes
  Tensor numbers_;                                // [line, numbers of TargetNumbers]
  std::vector<int64_t> ids_memory_;               // of both, on the CPU
  std::vector<double> numbers_memory_;
};

}  // namespace tandem::classifier::detail
