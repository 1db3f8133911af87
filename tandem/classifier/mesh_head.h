#pragma once
#include <memory>

#include "tandem/classifier/head.h"
#include "tandem/parallel/mesh.h"

namespace tandem::classifier {

/// A head whose classes are split over the ranks along some axes of a mesh, where ranks that do not share a batch bring
/// the same features. The first of these brings them to the head, and the others no rows:
///
///   Mesh({.data = 2, .tensor = 2}), 7 rows, 11 classes
///
///   over data and tensor     tensor 0                    tensor 1
///     data 0                 rows 0..3, classes 0..2     no rows, classes 3..5     features of 0..3, their gradient
///     and data 1                 rows 4..6, classes 6..8     no rows, classes 9..10    their best classes: on both
///     ranks
///   over data
///     data 0                 rows 0..3, classes 0..5     the same                  each column is a head of its own
///     data 1                 rows 4..6, classes 6..10    the same
///
/// Besides what the head sends, backward makes the gradient of the features the same on these ranks (all_reduce), and
/// top_k() its ids (broadcast).
class MeshHead : public Head {
 public:
  /// `head`: of mesh.group(over). The axes of `over` must include those of a batch that have several ranks. `sizes` of
  /// loss() and top_k() are those of the ranks that share a batch. The mesh must outlive this object. Collective.
  MeshHead(std::unique_ptr<Head> head, parallel::Axes over, parallel::Mesh& mesh);

  Tensor loss(const Tensor& features, const Tensor& targets, std::span<const int64_t> sizes) override;
  Tensor top_k(const Tensor& features, int64_t k, std::span<const int64_t> sizes) override;
  void run_apart() override { head_->run_apart(); }
  void set_softening(double softening) override { head_->set_softening(softening); }
  void set_step(int64_t step) override { head_->set_step(step); }
  void set_training(bool training) override { head_->set_training(training); }
  void set_row_update(RowUpdate update) override { head_->set_row_update(std::move(update)); }
  void set_rows_read(RowsRead read) override { head_->set_rows_read(std::move(read)); }
  parallel::Parameter parameter(std::string name = "head.weight") const override;

 private:
  bool brings_rows() const { return alike_.rank() == 0; }
  Tensor own_rows(const Tensor& rows) const { return brings_rows() ? rows : rows.narrow(0, 0, 0); }
  Tensor brought(const Tensor& features);
  std::vector<int64_t> sizes_of_group(std::span<const int64_t> sizes) const;

  std::unique_ptr<Head> head_;
  comm::ProcessGroup& alike_;     // ranks of the head that bring the same rows
  std::vector<int> batch_ranks_;  // of each rank of the head: whose rows it brings, as a number in the batch; -1: none
  parallel::Axes split_along_, behind_;
  bool has_copies_;
};

}  // namespace tandem::classifier
