#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/models/genotype.h"

// What an architecture search chooses from, and what it has chosen.
namespace tandem::models {

/// Of one kind of cell: the operations among which each edge chooses, by their names (operation_names()). Node
/// i has an edge from each value before it; edges are in the order of their nodes, and then of their inputs:
///
///   values 0, 1: outputs of the two cells before      node 2: edges 0, 1      node 3: edges 2, 3, 4      ...
///
/// All edges of a kind have equally many operations.
struct CellSpace {
  std::vector<std::vector<std::string_view>> edges;

  int64_t operations() const { return static_cast<int64_t>(edges.front().size()); }
};

/// The module of a network that holds what a search learns; its parameters' names begin with it and a dot.
inline constexpr std::string_view kAlphas = "alphas";

/// What makes a model's name of a space's.
inline constexpr std::string_view kSearchPrefix = "search:";

/// The space of a search over cells whose output are all their nodes. A genotype of it keeps `kept` edges of each node,
/// each with one operation.
struct Space {
  std::string_view name;
  std::string_view doc;  // for the settings' table
  int64_t nodes = 4;
  int64_t kept = 2;
  CellSpace normal, reduce;

  int64_t edges() const { return static_cast<int64_t>(normal.edges.size()); }
};

/// Edges of a cell with so many nodes.
constexpr int64_t edges_of(int64_t nodes) { return nodes * (nodes + 3) / 2; }

/// darts: the eight operations of Liu et al. 2019 on each edge. s2, s3: those of Zela et al. 2020, Understanding and
/// Robustifying Differentiable Architecture Search (arXiv:1909.09656), section 3, on which DARTS collapses; the first
/// is the default.
std::span<const Space> spaces();

/// Throws SettingsError (unknown name), naming `space`.
const Space& space_of(std::string_view name);

/// A space in which each edge of both kinds chooses among the same operations.
Space uniform_space(std::string_view name, int64_t nodes, std::vector<std::string_view> operations);

/// What the weights of a search stand for. Of each edge its best operation counts, none left out; of each node the
/// edges with the largest weight of these are kept, the largest first, of equal ones the earlier edge and operation.
/// Source: Liu, Simonyan, Yang 2019 (arXiv:1806.09055), section 2.4.
///   normal, reduce  [edges, operations] floating: the share of each operation
/// Throws c10::ValueError (another shape, or a value that is not a number).
Genotype derive(const Space& space, const Tensor& normal, const Tensor& reduce);

/// How many of a cell's edges have the operation skip_connect. Source of its use: Liang et al. 2019, DARTS+
/// (arXiv:1909.06035).
int64_t skips_of(const CellGenotype& cell);

}  // namespace tandem::models
