#include "tandem/models/genotype.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <map>

namespace tandem::models {
namespace {

struct Known {
  std::string_view name, normal, normal_concat, reduce, reduce_concat;
};

// Two edges a node, with the operations shortened as in kShort.
constexpr std::string_view kFour = "2345";
constexpr std::array<Known, 9> kKnown = {{
    {"darts-v1", "s3:1 s3:0 id:0 s3:1 id:0 s3:1 s3:0 id:2", kFour, "mp:0 mp:1 id:2 mp:0 mp:0 id:2 id:2 ap:0", kFour},
    {"darts-v2", "s3:0 s3:1 s3:0 s3:1 s3:1 id:0 id:0 d3:2", kFour, "mp:0 mp:1 id:2 mp:1 mp:0 id:2 id:2 mp:1", kFour},
    {"pc-darts", "s3:1 id:0 s3:0 d3:1 s5:0 s3:1 ap:0 d3:1", kFour, "s5:1 mp:0 s5:1 s5:2 s3:0 s3:3 s3:1 s3:2", kFour},
    {"pc-darts-imagenet", "id:1 s3:0 s3:0 id:1 s3:1 s3:3 s3:1 d5:4", kFour, "s3:0 id:1 d5:2 mp:1 s3:2 s3:1 s5:0 s3:3",
     kFour},
    {"p-darts", "id:0 d3:1 id:0 s3:1 s3:1 s3:3 s3:0 d5:4", kFour, "ap:0 s5:1 s3:0 d5:2 mp:0 d3:1 d3:1 d5:3", kFour},
    {"drnas", "s3:0 s5:1 s3:1 s3:2 id:0 s3:1 s3:2 d5:3", kFour, "mp:0 s5:1 d5:2 s5:1 s5:1 d5:3 id:4 s5:1", kFour},
    {"drnas-imagenet", "s3:1 s3:0 s3:0 s3:1 s3:0 d3:3 id:0 s3:1", kFour, "mp:0 s3:1 s3:0 id:2 s3:0 s3:2 s3:3 s3:1",
     kFour},
    {"nasnet", "s5:1 s3:0 s5:0 s3:0 ap:1 id:0 ap:0 ap:0 s3:1 id:1", "23456",
     "s5:1 s7:0 mp:1 s7:0 ap:1 s5:0 id:3 ap:2 s3:2 mp:1", "456"},
    {"amoebanet", "ap:0 mp:1 s3:0 s5:2 s3:0 ap:3 s3:1 id:1 id:0 ap:1", "456",
     "ap:0 s3:1 mp:0 s7:2 s7:0 ap:1 mp:0 mp:1 c7:0 s3:5", "346"},
}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kShort = {{{"s3", "sep_conv_3x3"},
                                                                                  {"s5", "sep_conv_5x5"},
                                                                                  {"s7", "sep_conv_7x7"},
                                                                                  {"d3", "dil_conv_3x3"},
                                                                                  {"d5", "dil_conv_5x5"},
                                                                                  {"id", "skip_connect"},
                                                                                  {"mp", "max_pool_3x3"},
                                                                                  {"ap", "avg_pool_3x3"},
                                                                                  {"c7", "conv_7x1_1x7"}}};

constexpr auto kNames = [] {
  std::array<std::string_view, kKnown.size()> names;
  std::ranges::transform(kKnown, names.begin(), &Known::name);
  return names;
}();

CellGenotype cell_of(std::string_view edges, std::string_view concat) {
  constexpr size_t kEach = 5;  // "s3:1 "
  CellGenotype cell;
  for (size_t at = 0; at < edges.size(); at += kEach) {
    if (at % (2 * kEach) == 0) cell.nodes.emplace_back();
    const auto* name = std::ranges::find(kShort, edges.substr(at, 2), [](const auto& entry) { return entry.first; });
    cell.nodes.back().push_back({std::string(name->second), edges[at + 3] - '0'});
  }
  for (const char value : concat) cell.concat.push_back(value - '0');
  return cell;
}

std::string text_of(const GenotypeEdge& edge) {
  return "('" + edge.operation + "', " + std::to_string(edge.input) + ")";
}

template <class List, class Text>
std::string list_of(const List& list, const Text& text) {
  std::string joined;
  for (const auto& item : list) joined += (joined.empty() ? "" : ", ") + text(item);
  return "[" + joined + "]";
}

std::string edges_text(const CellGenotype& cell, GenotypeForm form) {
  if (form == GenotypeForm::nested) {
    return list_of(cell.nodes, [](const auto& node) { return list_of(node, text_of); });
  }
  std::vector<GenotypeEdge> edges;
  for (const auto& node : cell.nodes) {
    TORCH_CHECK_VALUE(node.size() == 2, "genotype: a node has ", node.size(),
                      " edges, wanted 2 in the flat form: write the nested one");
    edges.insert(edges.end(), node.begin(), node.end());
  }
  return list_of(edges, text_of);
}

std::string concat_text(const CellGenotype& cell) {
  return list_of(cell.concat, [](int64_t value) { return std::to_string(value); });
}

}  // namespace

std::string to_text(const Genotype& genotype, GenotypeForm form) {
  const auto& [normal, reduce] = genotype;
  return "Genotype(normal=" + edges_text(normal, form) + ", normal_concat=" + concat_text(normal) +
         ", reduce=" + edges_text(reduce, form) + ", reduce_concat=" + concat_text(reduce) + ")";
}

std::string to_text(const Genotype& genotype) {
  const auto has_two = [](const auto& node) { return node.size() == 2; };
  const bool is_flat =
      std::ranges::all_of(genotype.normal.nodes, has_two) && std::ranges::all_of(genotype.reduce.nodes, has_two);
  return to_text(genotype, is_flat ? GenotypeForm::flat : GenotypeForm::nested);
}

std::string to_bench_201_text(const CellGenotype& cell) {
  std::string text;
  for (const auto& node : cell.nodes) {
    text += text.empty() ? "|" : "+|";
    for (const auto& edge : node) text += edge.operation + "~" + std::to_string(edge.input) + "|";
  }
  return text;
}

std::span<const std::string_view> genotype_names() { return kNames; }

const Genotype* known_genotype(std::string_view name) {
  static const auto genotypes = [] {
    std::map<std::string_view, Genotype> all;
    for (const auto& known : kKnown) {
      all[known.name] = {cell_of(known.normal, known.normal_concat), cell_of(known.reduce, known.reduce_concat)};
    }
    return all;
  }();
  const auto found = genotypes.find(name);
  return found == genotypes.end() ? nullptr : &found->second;
}

}  // namespace tandem::models
