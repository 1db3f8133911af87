#include "tandem/classifier/mesh_head.h"

#include <ATen/ATen.h>

#include "tandem/comm/collectives.h"
#include "tandem/comm/region.h"

namespace tandem::classifier {

using parallel::Axes;
using parallel::kBatchAxes;

MeshHead::MeshHead(std::unique_ptr<Head> head, Axes over, parallel::Mesh& mesh)
    : head_(std::move(head)),
      alike_(mesh.group(over - kBatchAxes)),
      split_along_(over | kBatchAxes),
      behind_(mesh.place({}).behind),
      has_copies_(mesh.sizes().size(over) < mesh.world().size()) {
  const auto& sizes = mesh.sizes();
  TORCH_CHECK_VALUE(sizes.size(over & kBatchAxes) == sizes.size(kBatchAxes), "head: its classes are split over ",
                    sizes.size(over & kBatchAxes), " of the ", sizes.size(kBatchAxes),
                    " ranks that share a batch, wanted all of them");
  for (const int rank : sizes.ranks_along(over, mesh.world().rank())) {
    const bool brings = sizes.number_along(over - kBatchAxes, rank) == 0;
    batch_ranks_.push_back(brings ? sizes.number_along(kBatchAxes, rank) : -1);
  }
}

std::vector<int64_t> MeshHead::sizes_of_group(std::span<const int64_t> sizes) const {
  std::vector<int64_t> of_group;
  for (const int rank : batch_ranks_) of_group.push_back(rank < 0 ? 0 : sizes[rank]);
  return of_group;
}

/// The rows that this rank brings to the head. Backward sums their gradient and the other ranks' zeros.
Tensor MeshHead::brought(const Tensor& features) {
  return alike_.size() == 1 ? features : own_rows(comm::copy_to_region(features, alike_));
}

Tensor MeshHead::loss(const Tensor& features, const Tensor& targets, std::span<const int64_t> sizes) {
  return head_->loss(brought(features), own_rows(targets), sizes_of_group(sizes));
}

Tensor MeshHead::top_k(const Tensor& features, int64_t k, std::span<const int64_t> sizes) {
  const at::NoGradGuard no_grad;
  const auto own = head_->top_k(own_rows(features), k, sizes_of_group(sizes));
  if (alike_.size() == 1) return own;
  const auto best = brings_rows() ? own : at::empty({features.size(0), k}, own.options());
  comm::broadcast_(best, 0, alike_);
  return best;
}

parallel::Parameter MeshHead::parameter(std::string name) const {
  auto own = head_->parameter(std::move(name));
  if (!has_copies_) return own;
  return parallel::Parameter::placed(own.name, own.tensor,
                                     {.splits = own.placement.splits, .split_along = split_along_, .behind = behind_});
}

}  // namespace tandem::classifier
