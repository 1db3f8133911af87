#include "tandem/parallel/mesh.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "tandem/comm/split.h"

namespace tandem::parallel {
namespace {

/// From the slowest in rank order to the fastest.
constexpr std::array kRankOrder = {Axis::pipeline, Axis::data, Axis::shard, Axis::tensor};
constexpr std::array kNames = {"data", "shard", "tensor", "pipeline"};

size_t index_of(Axis axis) { return static_cast<size_t>(axis); }
unsigned bit_of(Axis axis) { return 1U << index_of(axis); }

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
  TORCH_CHECK_VALUE(adds_up, "mesh: counts along axis ", kNames[index_of(cut.axis)], " are ", at::IntArrayRef(counts),
                    ", wanted ", size, " that add up to ", found->count, ", the size of dim ", cut.dim);
  found->first += std::accumulate(counts.begin(), counts.begin() + coordinate, int64_t{0});
  found->count = counts[coordinate];
}

}  // namespace

std::vector<int64_t> MeshSizes::shares(int64_t n) const {
  auto shares = comm::split_sizes(n, data * shard - servers);
  shares.resize(static_cast<size_t>(data * shard), 0);
  return shares;
}

Mesh::Mesh(const MeshSizes& sizes, comm::ProcessGroup& world)
    : world_(world),
      given_(sizes),
      sizes_{sizes.data, sizes.shard, sizes.tensor, sizes.pipeline},
      coordinates_(sizes_.size()) {
  int64_t ranks = 1;
  for (size_t axis = 0; axis < sizes_.size(); ++axis) {
    TORCH_CHECK_VALUE(sizes_[axis] >= 1, "mesh: axis ", kNames[axis], " is ", sizes_[axis], ", wanted 1 or more");
    ranks *= sizes_[axis];
  }
  TORCH_CHECK_VALUE(ranks == world.size(), "mesh: data ", sizes.data, " * shard ", sizes.shard, " * tensor ",
                    sizes.tensor, " * pipeline ", sizes.pipeline, " is ", ranks, ", wanted ", world.size(),
                    ", the number of ranks");
  const int sharing = sizes.data * sizes.shard;
  TORCH_CHECK_VALUE(sizes.servers >= 0 && sizes.servers < sharing, "mesh: servers is ", sizes.servers, " with ",
                    sharing, " ranks that share a batch, wanted 0..", sharing - 1);
  int rest = world.rank();
  for (auto axis = kRankOrder.rbegin(); axis != kRankOrder.rend(); ++axis) {
    coordinates_[index_of(*axis)] = rest % size(*axis);
    rest /= size(*axis);
  }
  for (const auto axis : kRankOrder) make_group(several({axis}));
}

int Mesh::size(Axis axis) const { return sizes_[index_of(axis)]; }

int Mesh::coordinate(Axis axis) const { return coordinates_[index_of(axis)]; }

/// Axes of size 1 are left out: they change no group.
Mesh::Axes Mesh::several(const std::vector<Axis>& axes) const {
  Axes set = 0;
  for (const auto axis : axes) set |= size(axis) > 1 ? bit_of(axis) : 0;
  return set;
}

int Mesh::size_of(Axes axes) const {
  int product = 1;
  for (const auto axis : kRankOrder) product *= (axes & bit_of(axis)) != 0 ? size(axis) : 1;
  return product;
}

/// This rank's number, in rank order, among the ranks that differ from it along `axes` only.
int Mesh::number_along(Axes axes) const {
  int number = 0;
  for (const auto axis : kRankOrder) {
    if ((axes & bit_of(axis)) != 0) number = number * size(axis) + coordinate(axis);
  }
  return number;
}

int Mesh::number_beside(Axis axis) const { return number_along(~bit_of(axis)); }

/// The same among those of them that `only` names.
int Mesh::number_along(Axes axes, const Only& only) const {
  const auto found = std::ranges::find(only.coordinates, coordinate(only.axis));
  TORCH_CHECK_VALUE(found != only.coordinates.end(), "mesh: coordinate along axis ", kNames[index_of(only.axis)],
                    " is ", coordinate(only.axis), ", wanted one of [", c10::Join(", ", only.coordinates),
                    "], where the tensor is");
  const auto place = static_cast<int>(found - only.coordinates.begin());
  return place * size_of(axes & ~bit_of(only.axis)) + number_along(axes & ~bit_of(only.axis));
}

/// The ranks of the world that differ from this one along `axes` only.
std::vector<int> Mesh::ranks_along(Axes axes) const {
  std::vector<int> ranks = {0};
  for (const auto axis : kRankOrder) {
    std::vector<int> finer;
    const bool differs = (axes & bit_of(axis)) != 0;
    for (const int rank : ranks) {
      for (int i = 0; i < (differs ? size(axis) : 1); ++i) {
        finer.push_back(rank * size(axis) + (differs ? i : coordinate(axis)));
      }
    }
    ranks = std::move(finer);
  }
  return ranks;
}

comm::ProcessGroup& Mesh::make_group(Axes axes) {
  if (size_of(axes) == world_.size()) return world_;
  auto& group = groups_[axes];
  if (!group) group = axes == 0 ? comm::make_single_group() : world_.split(number_along(~axes), ranks_along(axes));
  return *group;
}

comm::ProcessGroup& Mesh::group(Axis axis) { return make_group(several({axis})); }

comm::ProcessGroup& Mesh::group(const std::vector<Axis>& axes) { return make_group(several(axes)); }

Placement Mesh::place(at::IntArrayRef sizes, const std::vector<Cut>& cuts, const std::optional<Only>& only) const {
  Placement placement;
  Axes cut_axes = 0;
  for (const auto& cut : cuts) {
    TORCH_CHECK_VALUE(cut.dim >= 0 && cut.dim < static_cast<int64_t>(sizes.size()), "mesh: a cut is along dim ",
                      cut.dim, ", wanted a dim of ", sizes);
    TORCH_CHECK_VALUE((cut_axes & bit_of(cut.axis)) == 0 && !(only && only->axis == cut.axis), "mesh: axis ",
                      kNames[index_of(cut.axis)], " comes twice for one tensor, wanted it once");
    cut_axes |= bit_of(cut.axis);
    if (size(cut.axis) > 1) narrow(placement.splits, cut, size(cut.axis), coordinate(cut.axis), sizes);
  }
  const auto number = [&](Axes axes) { return only ? number_along(axes, *only) : number_along(axes); };
  if (only) placement.holder = number(~Axes{0});
  if (only && only->coordinates.size() == static_cast<size_t>(size(only->axis))) placement.holder.reset();
  if (!placement.splits.empty()) placement.replica = number(~cut_axes);
  return placement;
}

std::unique_ptr<comm::ProcessGroup> private_channel(comm::ProcessGroup& group, flight::Where where) {
  return group.split(0, where);
}

}  // namespace tandem::parallel
