#pragma once
#include <array>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "tandem/base/box.h"
#include "tandem/base/tensor.h"

namespace tandem::parallel {

/// Indices first .. first + count - 1, of `total`, along one dim of a tensor that is split over ranks.
struct Split {
  int64_t dim = 0, first = 0, count = 0, total = 0;

  bool operator==(const Split&) const = default;
};

/// The named axes along which the ranks of a job are arranged (mesh.h).
enum class Axis { data, shard, tensor, pipeline };

constexpr std::string_view name_of(Axis axis) {
  constexpr std::array<std::string_view, 4> names = {"data", "shard", "tensor", "pipeline"};
  return names[static_cast<size_t>(axis)];
}

/// A set of axes.
class Axes {
 public:
  constexpr Axes() = default;
  constexpr Axes(std::initializer_list<Axis> axes) {
    for (const auto axis : axes) bits_ |= bit_of(axis);
  }
  static constexpr Axes all() { return {Axis::data, Axis::shard, Axis::tensor, Axis::pipeline}; }

  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool has(Axis axis) const { return (bits_ & bit_of(axis)) != 0; }

  /// Those of both sets, those of either, and those that `other` lacks.
  constexpr Axes operator&(Axes other) const { return Axes(bits_ & other.bits_); }
  constexpr Axes operator|(Axes other) const { return Axes(bits_ | other.bits_); }
  constexpr Axes operator-(Axes other) const { return Axes(bits_ & ~other.bits_); }

  constexpr auto operator<=>(const Axes&) const = default;

 private:
  constexpr explicit Axes(unsigned bits) : bits_(bits) {}
  static constexpr unsigned bit_of(Axis axis) { return 1U << static_cast<unsigned>(axis); }

  unsigned bits_ = 0;
};

/// The ranks that share a batch differ along these. Strategies of data parallelism sum over them.
inline constexpr Axes kBatchAxes = {Axis::data, Axis::shard};

/// Which part of a tensor this rank holds, along which axes of the mesh other ranks hold the same part, and whether
/// this rank's copy is the one that counts.
///
///   [11, 6], dim 1 split along tensor, replicated along data          tensor 0         tensor 1
///                                                                     columns 0..2     columns 3..5
///                                                            data 0   rank 0: counts   rank 1: counts
///                                                            data 1   rank 2           rank 3
///
/// Norms count each part once, checkpoints store it once. Mesh::place() computes placements; the default is a tensor
/// that every rank of the job holds whole. A rank that holds several parts of a tensor has a placement for each.
struct Placement {
  std::vector<Split> splits = {};  // in ascending order of the dim, one a dim; empty: all of the tensor
  Axes split_along = {};           // ranks that differ along these hold different parts; none named: along all
  Axes some_along = {};            // along these, some ranks hold no part, such as the other stages of a pipeline
  Axes behind = {};                // along these, a rank that holds a part of the tensor comes before this one

  /// Every rank of the job holds all of it.
  bool is_everywhere() const { return is_replicated_along(Axes::all()); }

  /// Ranks that differ along `axes` only hold the same part.
  bool is_replicated_along(Axes axes) const { return ((axes_of_splits() | some_along) & axes).empty(); }

  /// Whether this rank's copy counts. `rank`: this rank in the group of all ranks of the job.
  bool counts_on(int rank) const { return is_everywhere() ? rank == 0 : counts_along(Axes::all()); }

  /// The same among the ranks that differ along `axes` only; of a tensor that is split or held by some.
  bool counts_along(Axes axes) const { return (behind & (axes - axes_of_splits())).empty(); }

  /// The placement of a tensor that each of these ranks holds whole, such as a step count beside a weight.
  Placement of_whole() const { return {.some_along = some_along, .behind = behind}; }

  /// The sizes of the whole tensor, and the elements that this rank holds; `sizes`: those of this rank's part.
  std::vector<int64_t> whole_sizes(at::IntArrayRef sizes) const;
  Box box(at::IntArrayRef sizes) const;

  /// Some ranks along an axis, of which this rank is one: the coordinates first .. last.
  struct Holders {
    Axis axis = Axis::shard;
    int first = 0, last = 0, own = 0, size = 1;  // size: of the axis
  };

  /// The placement of a box of this rank's part, whose sizes are `sizes`, where `holders` have divided the part; a box
  /// that is all of it they hold each. The part is replicated along their axis.
  Placement of_box(const Box& box, at::IntArrayRef sizes, const Holders& holders) const;

  bool operator==(const Placement&) const = default;

 private:
  Axes axes_of_splits() const { return splits.empty() || !split_along.empty() ? split_along : Axes::all(); }
};

/// Throws c10::ValueError, which begins with `what`, if a tensor of `sizes` cannot be a part with this placement: a dim
/// that the tensor lacks or that comes twice, another size along a dim, a range outside 0..total-1.
void check_placement(const std::string& what, const Placement& placement, at::IntArrayRef sizes);

}  // namespace tandem::parallel
