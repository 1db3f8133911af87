#pragma once
#include <memory>

#include "tandem/classifier/head.h"
#include "tandem/parallel/mesh.h"

namespace tandem::classifier {

/// A head whose classes are split over the ranks along some axes of a mesh, where ranks that do not share a batch have
/// the same features. Each of these brings a part of the rows to the head (comm::split_sizes()):
///
///   Mesh({.data = 2, .tensor = 2}), 7 rows, 11 classes
///
///   over data and tensor     tensor 0                       tensor 1
///     data 0                 rows 0..1, classes 0..2        rows 2..3, classes 3..5       features of rows 0..3
///     data 1                 rows 4..5, classes 6..8        row 6, classes 9..10          features of rows 4..6
///   over data
///     data 0                 rows 0..3, classes 0..5        the same                      each column is a head of its
///     data 1                 rows 4..6, classes 6..10       the same                      own
///
/// Besides what the head sends, ranks with the same features sum their gradient in backward (all_reduce), and gather
/// top_k's ids.
class MeshHead : public Head {
 public:
  /// `head`: of mesh.group(over). The axes of `over` must include those of a batch that have several ranks. `sizes` of
  /// loss() and top_k() are those of the ranks that share a batch. The mesh must outlive this object. Collective.
  MeshHead(std::unique_ptr<Head> head, parallel::Axes over, parallel::Mesh& mesh);

  Tensor loss(const Tensor& features, const Tensor& targets, std::span<const int64_t> sizes) override;
  Ranking top_k(const Tensor& features, int64_t k, std::span<const int64_t> sizes) override;
  void run_apart() override { head_->run_apart(); }
  void set_softening(double softening) override { head_->set_softening(softening); }
  void set_step(int64_t step) override { head_->set_step(step); }
  void set_training(bool training) override { head_->set_training(training); }
  void set_row_update(RowUpdate update) override { head_->set_row_update(std::move(update)); }
  void set_rows_read(RowsRead read) override { head_->set_rows_read(std::move(read)); }
  const ClassShardedHead* class_part() const override { return head_->class_part(); }
  parallel::Parameter parameter(std::string name = "head.weight") const override;

 private:
  Tensor own_rows(const Tensor& rows) const;
  std::vector<int64_t> sizes_of_group(std::span<const int64_t> sizes) const;

  std::unique_ptr<Head> head_;
  comm::ProcessGroup& alike_;  // ranks of the head that have the same features
  struct Place {
    int batch_rank, part;  // part: of the rows of the ranks with its features
  };
  std::vector<Place> places_;  // of each rank of the head
  parallel::Axes split_along_, behind_;
  bool has_copies_;
};

}  // namespace tandem::classifier
