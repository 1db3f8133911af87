#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// What an architecture search finds, as text: which operations make up a cell. Torch-free.
namespace tandem::models {

/// One edge into a node. Values of a cell are numbered: 0 and 1 are the outputs of the two cells before, the earlier
/// first, 2 + i is node i.
struct GenotypeEdge {
  std::string operation;  // one of operation_names()
  int64_t input = 0;

  bool operator==(const GenotypeEdge&) const = default;
};

struct CellGenotype {
  std::vector<std::vector<GenotypeEdge>> nodes;  // a node is the sum of its edges
  std::vector<int64_t> concat;                   // values whose channels, one after the other, are the output

  bool operator==(const CellGenotype&) const = default;
};

/// The cells of a network: normal ones, and those that halve the image.
struct Genotype {
  CellGenotype normal, reduce;

  bool operator==(const Genotype&) const = default;
};

/// The operations that an edge can have: none, max_pool_3x3, avg_pool_3x3, skip_connect, sep_conv_3x3, sep_conv_5x5,
/// dil_conv_3x3, dil_conv_5x5 (the eight of DARTS, in its order), sep_conv_7x7, conv_7x1_1x7, nor_conv_1x1,
/// nor_conv_3x3 and noise.
std::span<const std::string_view> operation_names();

/// The two forms in which genotypes are published.
enum class GenotypeForm : uint8_t {
  flat,   // of quark0/darts: a list of (operation, input), two a node
  nested  // of pt.darts: a list of them for each node, with as many as it has
};

/// `Genotype(normal=[...], normal_concat=[2, 3, 4, 5], reduce=[...], reduce_concat=[...])`, on one line. Throws
/// c10::ValueError for the flat form unless each node has two edges. Without a form: the flat one if it can be.
std::string to_text(const Genotype& genotype, GenotypeForm form);
std::string to_text(const Genotype& genotype);

/// Reads either form, as Python writes it: in any order of the four parts, after any name and `=`, with range(2, 6) for
/// a list of numbers. `source` begins error texts. Nothing is evaluated, and no more is allocated than the text is
/// long. Throws DataError: no genotype, a part that is missing or there twice, an unknown operation, an input that is
/// not before its node, a node without edges, an output that is no value of the cell, or an input of the reduction
/// cell, more than kMostNodes nodes or kMostGenotypeBytes bytes.
Genotype parse_genotype(std::string_view text, std::string_view source);

/// The operation that gives zeros.
inline constexpr std::string_view kNoOperation = "none";

/// Values that a cell takes: the outputs of the two cells before it.
inline constexpr int64_t kCellInputs = 2;

inline constexpr size_t kMostNodes = 64, kMostGenotypeBytes = 1 << 16;

/// A cell of NAS-Bench-201, `|op~0|+|op~0|op~1|+|op~0|op~1|op~2|`: value 0 is its only input, 1 + i is node i, each
/// node has an edge from every value before it, and the last node is the output. Source: Dong and Yang 2020,
/// NAS-Bench-201 (arXiv:2001.00326).
std::string to_bench_201_text(const CellGenotype& cell);
CellGenotype parse_bench_201(std::string_view text, std::string_view source);

/// Genotypes that were published under a name: darts-v1, darts-v2, pc-darts, pc-darts-imagenet, p-darts, drnas,
/// drnas-imagenet, nasnet, amoebanet.
std::span<const std::string_view> genotype_names();

/// Null if there is none of this name.
const Genotype* known_genotype(std::string_view name);

}  // namespace tandem::models
