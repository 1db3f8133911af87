#pragma once
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/parallel/placement.h"

namespace tandem::parallel {

enum class Axis { data, shard, tensor, pipeline };

struct MeshSizes {
  int data = 1, shard = 1, tensor = 1, pipeline = 1;
  int servers = 0;  // of the ranks that share a batch, the last so many get no part of it

  /// How many of n samples, or classes, each of the ranks that share a batch gets: comm::split_sizes() over those that
  /// are no servers.
  std::vector<int64_t> shares(int64_t n) const;
};

/// The ranks of a job, arranged along named axes. A group of an axis has the ranks that differ in that coordinate only.
///
///   Mesh({.data = 2, .tensor = 3}, world)              tensor 0   1   2
///                                              data 0        0    1   2      the ranks of the world
///                                                   1        3    4   5
///   rank 4: group(Axis::tensor) is 3 4 5, group(Axis::data) is 1 4
///
/// Neighbours in rank order, which usually share a machine, differ in the axis that talks most: tensor varies fastest,
/// then shard, then data, then pipeline.
class Mesh {
 public:
  /// Makes the groups of the axes. An axis that has all ranks uses `world` itself, an axis of size 1 a group of one:
  /// neither sends a message. Any other axis costs one split of the world, which asks no rank. Throws c10::ValueError
  /// if a size is below 1, if servers leave no rank for the batch, or if the product of the sizes is not the size of
  /// the world. `world` must outlive the mesh. Collective.
  Mesh(const MeshSizes& sizes, comm::ProcessGroup& world);

  int size(Axis axis) const;
  const MeshSizes& sizes() const { return given_; }
  int coordinate(Axis axis) const;  // of this rank, 0 .. size - 1; equals its rank in group(axis)

  /// This rank's number, in rank order, among the ranks that have its coordinate along `axis`.
  int number_beside(Axis axis) const;

  comm::ProcessGroup& world() const { return world_; }
  comm::ProcessGroup& group(Axis axis);

  /// The ranks that share a batch: along data and shard. Collective as group() of several axes.
  comm::ProcessGroup& batch() { return group({Axis::data, Axis::shard}); }

  /// The ranks that differ from this one in these coordinates only, in rank order. The first call for a set of axes
  /// makes its group and is collective over the world; later calls return the same group.
  comm::ProcessGroup& group(const std::vector<Axis>& axes);

  /// Cuts a dim of a tensor over the ranks of an axis.
  struct Cut {
    int64_t dim = 0;
    Axis axis = Axis::tensor;
    std::vector<int64_t> counts = {};  // of each coordinate; by default comm::split_sizes()
  };

  /// The coordinates along one axis whose ranks hold a tensor: the stages of a pipeline that have it.
  struct Only {
    Axis axis = Axis::pipeline;
    std::vector<int> coordinates;
  };

  /// The placement of this rank's part of a tensor of `sizes`. The cuts are made in order: a second cut of a dim
  /// divides the part that the first one left; an axis of size 1 cuts nothing. Along the other axes the tensor is
  /// replicated, along the axis of `only` on the ranks that it names. Throws c10::ValueError: a dim that the tensor
  /// lacks, an axis that comes twice, counts that do not add up, a rank that `only` does not name. Not collective.
  Placement place(at::IntArrayRef sizes, const std::vector<Cut>& cuts = {}, const std::optional<Only>& only = {}) const;

 private:
  using Axes = unsigned;  // a bit for each axis

  Axes several(const std::vector<Axis>& axes) const;
  int number_along(Axes axes) const;
  int number_along(Axes axes, const Only& only) const;
  int size_of(Axes axes) const;
  std::vector<int> ranks_along(Axes axes) const;
  comm::ProcessGroup& make_group(Axes axes);

  comm::ProcessGroup& world_;
  MeshSizes given_;
  std::vector<int> sizes_, coordinates_;  // by Axis
  std::map<Axes, std::unique_ptr<comm::ProcessGroup>> groups_;
};

/// A second group of the same ranks, for calls that run beside those of `group` on another thread: the calls of the two
/// groups never meet. Collective over `group`.
std::unique_ptr<comm::ProcessGroup> private_channel(comm::ProcessGroup& group,
                                                    flight::Where where = flight::Where::current());

}  // namespace tandem::parallel
