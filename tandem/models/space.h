#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/models/genotype.h"

// What an architecture search chooses from, and what it has chosen.
namespace tandem::models {

class Backbone;
struct ModelOptions;
struct Space;

/// Of one kind of cell: the operations among which each edge chooses, by their names (operation_names()). Node
/// i has an edge from each value before it; edges are in the order of their nodes, and then of their inputs:
///
///   values 0, 1: outputs of the two cells before      node 2: edges 0, 1      node 3: edges 2, 3, 4      ...
///
/// All edges of a kind have equally many operations.
struct CellSpace {
  std::string_view kind;  // "normal"
  std::vector<std::vector<std::string_view>> edges;

  int64_t operations() const { return static_cast<int64_t>(edges.front().size()); }
};

/// Cells that a search has found: one of each kind of its space.
using Cells = std::vector<CellGenotype>;

/// Where a space's cells stand: the network around them, and how they are written.
struct Skeleton {
  int64_t inputs = 0;        // values that a cell takes
  bool gives_nodes = false;  // a cell's output are all its nodes, side by side; otherwise the last one
  std::shared_ptr<Backbone> (*make)(const Space& space, const ModelOptions& options) = nullptr;
  int64_t (*features)(const Space& space, const ModelOptions& options) = nullptr;  // of an image, without embedding
  std::string (*text)(const Cells& cells) = nullptr;
  Cells (*parse)(std::string_view text, std::string_view source) = nullptr;  // throws DataError
};

/// Supernet (cells/supernet.h), and genotypes.
const Skeleton& darts_skeleton();

/// Bench201Supernet (cells/bench_201_supernet.h), and cells of NAS-Bench-201.
const Skeleton& bench_201_skeleton();

/// The module of a network that holds what a search learns; its parameters' names begin with it and a dot.
inline constexpr std::string_view kAlphas = "alphas";

/// What makes a model's name of a space's.
inline constexpr std::string_view kSearchPrefix = "search:";

/// The space of a search. What is found in it keeps `kept` edges of each node, each with one operation.
struct Space {
  std::string_view name;
  std::string_view doc;  // for the settings' table
  int64_t nodes = 4;
  int64_t kept = 2;
  bool keeps_none = false;  // an edge's operation may be none
  std::vector<CellSpace> cells;
  const Skeleton* skeleton = &darts_skeleton();

  int64_t edges() const { return static_cast<int64_t>(cells.front().edges.size()); }
  int64_t inputs() const { return skeleton->inputs; }
};

/// Edges of a cell with so many nodes, which takes so many values.
constexpr int64_t edges_of(int64_t nodes, int64_t inputs = kCellInputs) {
  return nodes * inputs + nodes * (nodes - 1) / 2;
}

/// darts: the eight operations of Liu et al. 2019 on each edge. s1 to s4: those of Zela et al. 2020, Understanding and
/// Robustifying Differentiable Architecture Search (arXiv:1909.09656), section 3, on which DARTS collapses.
/// nas-bench-201: Dong and Yang 2020 (arXiv:2001.00326). The first is the default.
std::span<const Space> spaces();

/// Null for an unknown name.
const Space* find_space(std::string_view name);

/// The models of searches, one a space: "search:darts".
std::vector<std::string> supernet_names();

/// Throws SettingsError (unknown name), naming `space`.
const Space& space_of(std::string_view name);

/// A space of darts_skeleton() in which each edge of both kinds, normal and reduce, chooses among the same operations.
Space uniform_space(std::string_view name, int64_t nodes, std::vector<std::string_view> operations);

/// What the weights of a search stand for. Of each edge its best operation counts, none left out unless it is kept; of
/// each node the edges with the largest weight of these are kept, the largest first, of equal ones the earlier edge and
/// operation; if all are kept, in their own order. Source: Liu, Simonyan, Yang 2019 (arXiv:1806.09055), section 2.4.
///   shares  one a kind of cell, [edges, operations] floating: the share of each operation
/// Throws c10::ValueError (another number or shape, or a value that is not a number).
Cells derive(const Space& space, const std::vector<Tensor>& shares);

/// How many of a cell's edges have the operation skip_connect. Source of its use: Liang et al. 2019, DARTS+
/// (arXiv:1909.06035).
int64_t skips_of(const CellGenotype& cell);

}  // namespace tandem::models
