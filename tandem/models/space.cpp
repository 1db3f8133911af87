#include "tandem/models/space.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "tandem/base/error.h"
#include "tandem/base/suggest.h"

namespace tandem::models {
namespace {

/// An edge of a cell, as a genotype would have it.
struct Choice {
  GenotypeEdge edge;
  double weight = 0;
};

using Names = std::vector<std::string_view>;

Names darts_operations() {
  const auto all = operation_names();
  return {all.begin(), all.begin() + 8};
}

/// Two operations an edge, which a search over the eight has left.
Space s1() {
  constexpr std::string_view kSkip = "skip_connect", kMax = "max_pool_3x3", kAverage = "avg_pool_3x3",
                             kSeparable = "sep_conv_3x3", kDilated3 = "dil_conv_3x3", kDilated5 = "dil_conv_5x5";
  const std::vector<Names> normal = {
      {kSkip, kDilated3}, {kSkip, kDilated5},  {kSkip, kDilated5},     {kSkip, kSeparable},   {kSkip, kDilated3},
      {kMax, kSkip},      {kSkip, kSeparable}, {kSkip, kSeparable},    {kSkip, kDilated3},    {kSkip, kSeparable},
      {kMax, kSkip},      {kSkip, kDilated3},  {kDilated3, kDilated5}, {kDilated3, kDilated5}};
  const std::vector<Names> reduce = {{kMax, kAverage},   {kMax, kDilated3}, {kMax, kAverage},   {kMax, kAverage},
                                     {kSkip, kDilated5}, {kMax, kAverage},  {kMax, kSeparable}, {kSkip, kDilated3},
                                     {kSkip, kDilated5}, {kMax, kAverage},  {kMax, kAverage},   {kSkip, kDilated5},
                                     {kSkip, kDilated5}, {kSkip, kDilated5}};
  return {.name = "s1", .doc = {}, .cells = {{"normal", normal}, {"reduce", reduce}}};
}

Space nas_bench_201() {
  const Names operations = {"none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3"};
  constexpr int64_t kNodes = 3;
  return {.name = "nas-bench-201",
          .doc = {},
          .nodes = kNodes,
          .kept = kNodes,
          .keeps_none = true,
          .cells = {{"cell", std::vector(edges_of(kNodes, 1), operations)}},
          .skeleton = &bench_201_skeleton()};
}

Space described(Space space, std::string_view doc) {
  space.doc = doc;
  return space;
}

std::vector<Space> all_spaces() {
  return {described(uniform_space("darts", 4, darts_operations()), "the eight operations of DARTS on each edge"),
          described(s1(), "two operations an edge, which a search over darts has left; DARTS collapses on s1 to s4"),
          described(uniform_space("s2", 4, {"skip_connect", "sep_conv_3x3"}), "skip_connect and sep_conv_3x3"),
          described(uniform_space("s3", 4, {"none", "skip_connect", "sep_conv_3x3"}), "those of s2, and none"),
          described(uniform_space("s4", 4, {"noise", "sep_conv_3x3"}), "noise, which is no use, and sep_conv_3x3"),
          described(nas_bench_201(), "the five operations of this benchmark, in its network")};
}

/// The best operation of an edge.
Choice best_of(const Names& operations, const double* weights, int64_t input, bool keeps_none) {
  Choice best;
  for (size_t i = 0; i < operations.size(); ++i) {
    if (operations[i] == kNoOperation && !keeps_none) continue;
    if (best.edge.operation.empty() || weights[i] > best.weight) {
      best = {{std::string(operations[i]), input}, weights[i]};
    }
  }
  return best;
}

void check_weights(const Space& space, const CellSpace& cell, const Tensor& weights) {
  TORCH_CHECK_VALUE(weights.dim() == 2 && weights.size(0) == space.edges() && weights.size(1) == cell.operations(),
                    "weights of operations: shape is ", weights.sizes(), ", wanted [", space.edges(), ", ",
                    cell.operations(), "] for the space ", std::string(space.name));
  TORCH_CHECK_VALUE(!weights.isnan().any().item<bool>(), "weights of operations: one is not a number");
}

CellGenotype derive_cell(const Space& space, const CellSpace& cell, const Tensor& of_edges) {
  check_weights(space, cell, of_edges);
  const auto weights = of_edges.detach().to(at::kCPU, at::kDouble).contiguous();
  const double* weight = weights.const_data_ptr<double>();
  const bool keeps_all = space.kept >= space.inputs() + space.nodes - 1;
  CellGenotype genotype;
  int64_t edge = 0;
  for (int64_t node = 0; node < space.nodes; ++node) {
    std::vector<Choice> choices;
    for (int64_t input = 0; input < space.inputs() + node; ++input, ++edge) {
      choices.push_back(best_of(cell.edges[edge], weight + edge * cell.operations(), input, space.keeps_none));
    }
    if (!keeps_all) std::ranges::stable_sort(choices, std::greater(), &Choice::weight);
    auto& kept = genotype.nodes.emplace_back();
    for (int64_t i = 0; i < std::min<int64_t>(space.kept, std::ssize(choices)); ++i) kept.push_back(choices[i].edge);
    if (space.skeleton->gives_nodes || node + 1 == space.nodes) genotype.concat.push_back(space.inputs() + node);
  }
  return genotype;
}

}  // namespace

Space uniform_space(std::string_view name, int64_t nodes, Names operations) {
  return {.name = name,
          .doc = {},
          .nodes = nodes,
          .cells = {{"normal", std::vector(edges_of(nodes), operations)},
                    {"reduce", std::vector(edges_of(nodes), operations)}}};
}

std::span<const Space> spaces() {
  static const auto all = all_spaces();
  return all;
}

const Space* find_space(std::string_view name) {
  const auto all = spaces();
  const auto found = std::ranges::find(all, name, &Space::name);
  return found == all.end() ? nullptr : &*found;
}

std::vector<std::string> supernet_names() {
  std::vector<std::string> names;
  for (const auto& space : spaces()) names.push_back(std::string(kSearchPrefix) + std::string(space.name));
  return names;
}

const Space& space_of(std::string_view name) {
  const auto* found = find_space(name);
  if (found != nullptr) return *found;
  std::vector<std::string> names;
  for (const auto& space : spaces()) names.emplace_back(space.name);
  throw SettingsError("space is '" + std::string(name) + "', wanted " + one_of(names));
}

Cells derive(const Space& space, const std::vector<Tensor>& shares) {
  TORCH_CHECK_VALUE(shares.size() == space.cells.size(), "weights of operations: there are ", shares.size(),
                    ", wanted ", space.cells.size(), " for the space ", std::string(space.name));
  Cells cells;
  for (size_t i = 0; i < shares.size(); ++i) cells.push_back(derive_cell(space, space.cells[i], shares[i]));
  return cells;
}

int64_t skips_of(const CellGenotype& cell) {
  int64_t skips = 0;
  for (const auto& node : cell.nodes) {
    skips += std::ranges::count(node, std::string("skip_connect"), &GenotypeEdge::operation);
  }
  return skips;
}

}  // namespace tandem::models
