#pragma once
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/parallel/placement.h"

namespace tandem::parallel {

/// How many ranks differ along each axis. Which rank is where follows without any communication.
struct MeshSizes {
  int data = 1, shard = 1, tensor = 1, pipeline = 1;

  int size(Axis axis) const;
  int size(Axes axes) const;  // the product of their sizes
  int64_t ranks() const;      // of the world

  /// Of a rank of the world: its place along an axis, 0 .. size - 1, and its number, in rank order, among the ranks
  /// that differ from it along `axes` only.
  int coordinate(Axis axis, int rank) const;
  int number_along(Axes axes, int rank) const;

  /// The ranks of the world that differ from `rank` along `axes` only, in rank order.
  std::vector<int> ranks_along(Axes axes, int rank) const;
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
  /// if a size is below 1, or if the product of the sizes is not the size of the world. `world` must outlive the mesh.
  /// Collective.
  Mesh(const MeshSizes& sizes, comm::ProcessGroup& world);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  const MeshSizes& sizes() const { return sizes_; }
  int size(Axis axis) const { return sizes_.size(axis); }
  int coordinate(Axis axis) const;  // of this rank; equals its rank in group(axis)

  comm::ProcessGroup& world() const { return world_; }

  /// The ranks that differ from this one along `axes` only, in rank order. The first call for several axes makes their
  /// group and is collective over the world; later calls return the same group.
  comm::ProcessGroup& group(Axes axes);
  comm::ProcessGroup& group(Axis axis) { return group(Axes{axis}); }

  /// The ranks that share a batch.
  comm::ProcessGroup& batch() { return group(kBatchAxes); }

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

  /// That of one part among those that the ranks along an axis hold, cut by whoever made it.
  Placement place(const Split& part, Axis axis) const;

 private:
  Axes behind() const;

  comm::ProcessGroup& world_;
  MeshSizes sizes_;
  std::map<Axes, std::unique_ptr<comm::ProcessGroup>> groups_;
};

/// A second group of the same ranks, for calls that run beside those of `group` on another thread: the calls of the two
/// groups never meet. Collective over `group`.
std::unique_ptr<comm::ProcessGroup> private_channel(comm::ProcessGroup& group,
                                                    flight::Where where = flight::Where::current());

}  // namespace tandem::parallel
