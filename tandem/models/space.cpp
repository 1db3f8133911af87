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

CellSpace on_all_edges(int64_t nodes, const std::vector<std::string_view>& operations) {
  return {std::vector(edges_of(nodes), operations)};
}

std::vector<std::string_view> darts_operations() {
  const auto all = operation_names();
  return {all.begin(), all.begin() + 8};
}

Space described(Space space, std::string_view doc) {
  space.doc = doc;
  return space;
}

std::vector<Space> all_spaces() {
  return {described(uniform_space("darts", 4, darts_operations()), "the eight operations of DARTS on each edge"),
          described(uniform_space("s2", 4, {"skip_connect", "sep_conv_3x3"}),
                    "skip_connect and sep_conv_3x3, on which DARTS collapses"),
          described(uniform_space("s3", 4, {"none", "skip_connect", "sep_conv_3x3"}), "those of s2, and none")};
}

/// The best operation of an edge.
Choice best_of(const std::vector<std::string_view>& operations, const double* weights, int64_t input) {
  Choice best;
  for (size_t i = 0; i < operations.size(); ++i) {
    if (operations[i] == kNoOperation) continue;
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
  CellGenotype genotype;
  int64_t edge = 0;
  for (int64_t node = 0; node < space.nodes; ++node) {
    std::vector<Choice> choices;
    for (int64_t input = 0; input < kCellInputs + node; ++input, ++edge) {
      choices.push_back(best_of(cell.edges[edge], weight + edge * cell.operations(), input));
    }
    std::ranges::stable_sort(choices, std::greater(), &Choice::weight);
    auto& kept = genotype.nodes.emplace_back();
    for (int64_t i = 0; i < std::min<int64_t>(space.kept, std::ssize(choices)); ++i) kept.push_back(choices[i].edge);
    genotype.concat.push_back(kCellInputs + node);
  }
  return genotype;
}

}  // namespace

Space uniform_space(std::string_view name, int64_t nodes, std::vector<std::string_view> operations) {
  return {.name = name,
          .doc = {},
          .nodes = nodes,
          .normal = on_all_edges(nodes, operations),
          .reduce = on_all_edges(nodes, operations)};
}

std::span<const Space> spaces() {
  static const auto all = all_spaces();
  return all;
}

const Space& space_of(std::string_view name) {
  const auto all = spaces();
  const auto found = std::ranges::find(all, name, &Space::name);
  if (found != all.end()) return *found;
  std::vector<std::string> names;
  for (const auto& space : all) names.emplace_back(space.name);
  throw SettingsError("space is '" + std::string(name) + "', wanted " + one_of(names));
}

Genotype derive(const Space& space, const Tensor& normal, const Tensor& reduce) {
  return {derive_cell(space, space.normal, normal), derive_cell(space, space.reduce, reduce)};
}

int64_t skips_of(const CellGenotype& cell) {
  int64_t skips = 0;
  for (const auto& node : cell.nodes) {
    skips += std::ranges::count(node, std::string("skip_connect"), &GenotypeEdge::operation);
  }
  return skips;
}

}  // namespace tandem::models
