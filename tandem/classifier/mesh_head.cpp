#include "tandem/classifier/mesh_head.h"

#include <ATen/ATen.h>

#include "tandem/comm/collectives.h"
#include "tandem/comm/region.h"
#include "tandem/comm/split.h"

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
    places_.push_back({sizes.number_along(kBatchAxes, rank), sizes.number_along(over - kBatchAxes, rank)});
  }
}

std::vector<int64_t> MeshHead::sizes_of_group(std::span<const int64_t> sizes) const {
  std::vector<int64_t> of_group;
  for (const auto& [rank, part] : places_) of_group.push_back(comm::split_sizes(sizes[rank], alike_.size())[part]);
  return of_group;
}

Tensor MeshHead::own_rows(const Tensor& rows) const {
  const auto [begin, end] = comm::split_range(rows.size(0), alike_.size(), alike_.rank());
  return rows.slice(0, begin, end);
}

Tensor MeshHead::loss(const Tensor& features, const Tensor& targets, std::span<const int64_t> sizes) {
  // Backward adds the parts of the gradient, each with zeros in place of the others.
  return head_->loss(own_rows(comm::copy_to_region(features, alike_)), own_rows(targets), sizes_of_group(sizes));
}

Ranking MeshHead::top_k(const Tensor& features, int64_t k, std::span<const int64_t> sizes) {
  const at::NoGradGuard no_grad;
  const auto own = head_->top_k(own_rows(features), k, sizes_of_group(sizes));
  const auto parts = comm::split_sizes(features.size(0), alike_.size());
  return {comm::all_gather(own.classes, alike_, 0, parts), comm::all_gather(own.scores, alike_, 0, parts)};
}

parallel::Parameter MeshHead::parameter(std::string name) const {
  auto own = head_->parameter(std::move(name));
  if (!has_copies_) return own;
  return parallel::Parameter::placed(own.name, own.tensor,
                                     {.splits = own.placement.splits, .split_along = split_along_, .behind = behind_});
}

}  // namespace tandem::classifier
