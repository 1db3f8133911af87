#include "tandem/parallel/mesh.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>

#include "tandem/comm/split.h"

namespace tandem::parallel {
namespace {

/// From the slowest in rank order to the fastest.
constexpr std::array kRankOrder = {Axis::pipeline, Axis::data, Axis::shard, Axis::tensor};

size_t index_of(Axis axis) { return static_cast<size_t>(axis); }

/// Narrows one dim of a placement to the part of `coordinate`.
void narrow(std::vector<Split>& splits, const Mesh::Cut& cut, int size, int coordinate, at::IntArrayRef sizes) {
  auto found = std::ranges::find(splits, cut.dim, &Split::dim);
  if (found == splits.end()) {
    const auto after = std::ranges::upper_bound(splits, cut.dim, {}, &Split::dim);
    found = splits.insert(after, {cut.dim, 0, sizes[cut.dim], sizes[cut.dim]});
  }
  const auto counts = cut.counts.empty() ? comm::split_sizes(found->count, size) : cut.counts;
  const bool adds_up = counts.size() == static_cast<size_t>(size) &&
                       std::ranges::all_of(counts, [](int64_t count) { return count >= 0; }) &&
                       std::accumulate(counts.begin(), counts.end(), int64_t{0}) == found->count;
  TORCH_CHECK_VALUE(adds_up, "mesh: counts along axis ", name_of(cut.axis), " are ", at::IntArrayRef(counts),
                    ", wanted ", size, " that add up to ", found->count, ", the size of dim ", cut.dim);
  found->first += std::accumulate(counts.begin(), counts.begin() + coordinate, int64_t{0});
  found->count = counts[coordinate];
}

}  // namespace

int MeshSizes::size(Axis axis) const { return std::array{data, shard, tensor, pipeline}[index_of(axis)]; }

int MeshSizes::size(Axes axes) const {
  int product = 1;
  for (const auto axis : kRankOrder) product *= axes.has(axis) ? size(axis) : 1;
  return product;
}

int64_t MeshSizes::ranks() const { return int64_t{data} * shard * tensor * pipeline; }

int MeshSizes::coordinate(Axis wanted, int rank) const {
  for (auto axis = kRankOrder.rbegin(); *axis != wanted; ++axis) rank /= size(*axis);
  return rank % size(wanted);
}

int MeshSizes::number_along(Axes axes, int rank) const {
  int number = 0;
  for (const auto axis : kRankOrder) {
    if (axes.has(axis)) number = number * size(axis) + coordinate(axis, rank);
  }
  return number;
}

std::vector<int> MeshSizes::ranks_along(Axes axes, int rank) const {
  std::vector<int> ranks = {0};
  for (const auto axis : kRankOrder) {
    const int own = coordinate(axis, rank), first = axes.has(axis) ? 0 : own;
    std::vector<int> finer;
    for (const int coarse : ranks) {
      for (int i = first; i < (axes.has(axis) ? size(axis) : own + 1); ++i) finer.push_back(coarse * size(axis) + i);
    }
    ranks = std::move(finer);
  }
  return ranks;
}

Mesh::Mesh(const MeshSizes& sizes, comm::ProcessGroup& world) : world_(world), sizes_(sizes) {
  for (const auto axis : {Axis::data, Axis::shard, Axis::tensor, Axis::pipeline}) {
    TORCH_CHECK_VALUE(size(axis) >= 1, "mesh: axis ", name_of(axis), " is ", size(axis), ", wanted 1 or more");
  }
  TORCH_CHECK_VALUE(sizes.ranks() == world.size(), "mesh: data ", sizes.data, " * shard ", sizes.shard, " * tensor ",
                    sizes.tensor, " * pipeline ", sizes.pipeline, " is ", sizes.ranks(), ", wanted ", world.size(),
                    ", the number of ranks");
  for (const auto axis : kRankOrder) group(axis);
}

/// What runs on the thread of the axis shard may use the axis data, whose groups therefore end after it.
Mesh::~Mesh() {
  while (!groups_.empty()) groups_.erase(std::prev(groups_.end()));
}

int Mesh::coordinate(Axis axis) const { return sizes_.coordinate(axis, world_.rank()); }

comm::ProcessGroup& Mesh::group(Axes wanted) {
  if (sizes_.size(wanted) == world_.size()) return world_;
  Axes axes;  // without those of size 1, which change no group
  for (const auto axis : kRankOrder) axes = size(axis) > 1 && wanted.has(axis) ? axes | Axes{axis} : axes;
  auto& group = groups_[axes];
  const int rank = world_.rank();
  if (!group) {
    group = axes.empty() ? comm::make_single_group()
                         : world_.split(sizes_.number_along(Axes::all() - axes, rank), sizes_.ranks_along(axes, rank));
  }
  return *group;
}

/// The axes along which this rank is not the first one.
Axes Mesh::behind() const {
  Axes behind;
  for (const auto axis : kRankOrder) behind = coordinate(axis) > 0 ? behind | Axes{axis} : behind;
  return behind;
}

Placement Mesh::place(at::IntArrayRef sizes, const std::vector<Cut>& cuts, const std::optional<Only>& only) const {
  Placement placement{.behind = behind()};
  Axes cut_axes;
  for (const auto& cut : cuts) {
    TORCH_CHECK_VALUE(cut.dim >= 0 && cut.dim < static_cast<int64_t>(sizes.size()), "mesh: a cut is along dim ",
                      cut.dim, ", wanted a dim of ", sizes);
    TORCH_CHECK_VALUE(!cut_axes.has(cut.axis) && !(only && only->axis == cut.axis), "mesh: axis ", name_of(cut.axis),
                      " comes twice for one tensor, wanted it once");
    cut_axes = cut_axes | Axes{cut.axis};
    if (size(cut.axis) == 1) continue;
    narrow(placement.splits, cut, size(cut.axis), coordinate(cut.axis), sizes);
    placement.split_along = placement.split_along | Axes{cut.axis};
  }
  if (!only) return placement;
  const auto found = std::ranges::find(only->coordinates, coordinate(only->axis));
  TORCH_CHECK_VALUE(found != only->coordinates.end(), "mesh: coordinate along axis ", name_of(only->axis), " is ",
                    coordinate(only->axis), ", wanted one of [", c10::Join(", ", only->coordinates),
                    "], where the tensor is");
  placement.behind = placement.behind - Axes{only->axis};
  if (found != only->coordinates.begin()) placement.behind = placement.behind | Axes{only->axis};
  const bool are_all = only->coordinates.size() == static_cast<size_t>(size(only->axis));
  if (!are_all) placement.some_along = {only->axis};
  return placement;
}

Placement Mesh::place(const Split& part, Axis axis) const {
  return {.splits = {part}, .split_along = {axis}, .behind = behind()};
}

std::unique_ptr<comm::ProcessGroup> private_channel(comm::ProcessGroup& group, flight::Where where) {
  return group.split(0, where);
}

}  // namespace tandem::parallel
