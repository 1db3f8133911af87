#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>
#include <variant>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/base/suggest.h"
#include "tandem/models/genotype.h"

namespace tandem::models {
namespace {

constexpr int kDeepest = 4;  // lists: of nodes, of edges, of an edge's operation and input
constexpr int64_t kLargestNumber = 1 << 20;

/// What stands in a genotype: an operation, a number, or a list of such.
struct Value;
using List = std::vector<Value>;
struct Value {
  std::variant<std::string, int64_t, List> content;
};

class Reader {
 public:
  Reader(std::string_view text, std::string_view source) : text_(text), source_(source) {
    if (text.size() > kMostGenotypeBytes) {
      fail("has " + std::to_string(text.size()) + " bytes, wanted at most " + std::to_string(kMostGenotypeBytes));
    }
  }

  [[noreturn]] void fail(const std::string& fault, const std::string& part = "") const {
    throw DataError(std::string(source_) + ": the genotype" + part + " " + fault);
  }
  [[noreturn]] void fail_here(const std::string& wanted) const {
    fail("has " + (at_ < text_.size() ? quote(text_.substr(at_, 12)) : "its end") + " at byte " + std::to_string(at_) +
         ", wanted " + wanted);
  }

  void skip_to(std::string_view word) {
    const auto found = text_.find(word);
    if (found == std::string_view::npos) fail("is not there, wanted " + std::string(word) + "normal=[...], ...)");
    at_ = found + word.size();
  }

  bool take(char wanted) {
    skip_spaces();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  void expect(char wanted) {
    if (!take(wanted)) fail_here(std::string("'") + wanted + "'");
  }

  void expect_end() {
    skip_spaces();
    if (at_ < text_.size()) fail_here("its end");
  }

  /// Letters, digits and underscores.
  std::string_view word() {
    skip_spaces();
    const auto begin = at_;
    while (at_ < text_.size() && is_of_word(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  int64_t number() {
    skip_spaces();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0 || value > kLargestNumber) fail_here("a whole number");
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  Value value(int depth = 0) {
    if (depth > kDeepest) fail_here("no more lists in lists");
    if (take('[')) return {list(']', depth)};
    if (take('(')) return {list(')', depth)};
    if (take('\'')) return {text_until('\'')};
    if (take('"')) return {text_until('"')};
    if (at_ < text_.size() && text_[at_] == 'r') return {range()};
    return {number()};
  }

 private:
  static bool is_of_word(char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
           letter == '_';
  }

  void skip_spaces() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  List list(char end, int depth) {
    List values;
    while (!take(end)) {
      values.push_back(value(depth + 1));
      if (take(',')) continue;
      expect(end);
      break;
    }
    return values;
  }

  std::string text_until(char quote) {
    const auto end = text_.find(quote, at_);
    if (end == std::string_view::npos) fail_here(std::string("a closing ") + quote);
    const auto content = text_.substr(at_, end - at_);
    at_ = end + 1;
    return std::string(content);
  }

  /// range(first, last): Python's, without its last number.
  List range() {
    if (word() != "range") fail_here("a list");
    expect('(');
    const auto first = number();
    expect(',');
    const auto last = number();
    expect(')');
    if (last > first + static_cast<int64_t>(kMostNodes) + 2) fail_here("a shorter range");
    List values;
    for (auto number = first; number < last; ++number) values.push_back({number});
    return values;
  }

  std::string_view text_, source_;
  size_t at_ = 0;
};

/// A cell in the making: what its two parts say.
class CellReader {
 public:
  CellReader(const Reader& reader, std::string name) : reader_(reader), name_(std::move(name)) {}

  /// `halves`: the outputs of nodes are half as high and wide as the inputs.
  CellGenotype read(const Value& nodes, const Value& concat, bool halves) const {
    CellGenotype cell;
    cell.nodes = nodes_of(nodes);
    if (cell.nodes.empty() || cell.nodes.size() > kMostNodes) {
      fail("has " + std::to_string(cell.nodes.size()) + " nodes, wanted 1.." + std::to_string(kMostNodes));
    }
    for (size_t node = 0; node < cell.nodes.size(); ++node) check(cell.nodes[node], static_cast<int64_t>(node));
    const auto values = static_cast<int64_t>(cell.nodes.size()) + 2;
    for (const auto& number : list_of(concat, "concat")) {
      const auto* value = std::get_if<int64_t>(&number.content);
      if (value == nullptr || *value >= values || std::ranges::count(cell.concat, *value) > 0) {
        fail("has an output that is no number of 0.." + std::to_string(values - 1) + ", or is there twice");
      }
      if (halves && *value < kCellInputs) {
        fail("has the output " + std::to_string(*value) + ", an input that it makes half as high and wide, wanted 2.." +
             std::to_string(values - 1) + " in " + name_ + "_concat");
      }
      cell.concat.push_back(*value);
    }
    if (cell.concat.empty()) fail("has no outputs, wanted one or more in " + name_ + "_concat");
    return cell;
  }

 private:
  [[noreturn]] void fail(const std::string& fault) const { reader_.fail(fault, "'s " + name_ + " cell"); }

  const List& list_of(const Value& value, const std::string& what) const {
    if (const auto* list = std::get_if<List>(&value.content)) return *list;
    fail("has a " + what + " that is no list");
  }

  static bool is_edge(const Value& value) {
    const auto* list = std::get_if<List>(&value.content);
    return list != nullptr && list->size() == 2 && std::holds_alternative<std::string>(list->front().content) &&
           std::holds_alternative<int64_t>(list->back().content);
  }

  GenotypeEdge edge_of(const Value& value) const {
    if (!is_edge(value)) fail("has an edge that is no ('operation', input)");
    const auto& list = std::get<List>(value.content);
    return {std::get<std::string>(list.front().content), std::get<int64_t>(list.back().content)};
  }

  std::vector<std::vector<GenotypeEdge>> nodes_of(const Value& value) const {
    std::vector<std::vector<GenotypeEdge>> nodes;
    const auto& items = list_of(value, "list of nodes");
    const bool is_flat = std::ranges::all_of(items, is_edge);
    if (is_flat && items.size() % 2 != 0) {
      fail("has " + std::to_string(items.size()) + " edges, wanted two a node");
    }
    for (size_t i = 0; i < items.size(); ++i) {
      if (!is_flat || i % 2 == 0) nodes.emplace_back();
      if (is_flat) {
        nodes.back().push_back(edge_of(items[i]));
      } else {
        for (const auto& edge : list_of(items[i], "node")) nodes.back().push_back(edge_of(edge));
      }
    }
    return nodes;
  }

  void check(const std::vector<GenotypeEdge>& edges, int64_t node) const {
    if (edges.empty()) fail("has a node without edges");
    for (const auto& [operation, input] : edges) {
      check_operation(operation);
      if (input < node + 2) continue;
      fail("has input " + std::to_string(input) + " at node " + std::to_string(node) + ", wanted 0.." +
           std::to_string(node + 1));
    }
  }

  void check_operation(const std::string& operation) const {
    const auto names = operation_names();
    if (std::ranges::find(names, operation) != names.end()) return;
    const auto hint = did_you_mean(nearest(operation, names));
    fail("has operation " + quote(operation) + ", " + (hint.empty() ? "which is none of DARTS" : hint));
  }

  const Reader& reader_;
  std::string name_;
};

}  // namespace

Genotype parse_genotype(std::string_view text, std::string_view source) {
  constexpr std::array<std::string_view, 4> kParts = {"normal", "normal_concat", "reduce", "reduce_concat"};
  Reader reader(text, source);
  reader.skip_to("Genotype(");
  std::array<std::optional<Value>, kParts.size()> parts;
  while (!reader.take(')')) {
    const auto name = reader.word();
    const auto part = std::ranges::find(kParts, name);
    if (part == kParts.end()) reader.fail_here("normal=, normal_concat=, reduce= or reduce_concat=");
    auto& value = parts[part - kParts.begin()];
    if (value) reader.fail("has " + std::string(name) + " twice");
    reader.expect('=');
    value = reader.value();
    if (!reader.take(',')) {
      reader.expect(')');
      break;
    }
  }
  reader.expect_end();
  for (size_t i = 0; i < kParts.size(); ++i) {
    if (!parts[i]) reader.fail("has no " + std::string(kParts[i]));
  }
  return {CellReader(reader, "normal").read(*parts[0], *parts[1], /*halves=*/false),
          CellReader(reader, "reduce").read(*parts[2], *parts[3], /*halves=*/true)};
}

CellGenotype parse_bench_201(std::string_view text, std::string_view source) {
  constexpr std::array<std::string_view, 5> kBench = {"none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3",
                                                      "avg_pool_3x3"};
  Reader reader(text, source);
  CellGenotype cell;
  while (cell.nodes.size() < kMostNodes) {
    auto& node = cell.nodes.emplace_back();
    reader.expect('|');
    for (int64_t input = 0; input < static_cast<int64_t>(cell.nodes.size()); ++input) {
      const std::string operation(reader.word());
      if (std::ranges::find(kBench, operation) == kBench.end()) {
        reader.fail("has operation " + quote(operation) + ", wanted " + one_of({kBench.begin(), kBench.end()}));
      }
      reader.expect('~');
      if (reader.number() != input) reader.fail_here("an edge from value " + std::to_string(input) + " before it");
      reader.expect('|');
      node.push_back({operation, input});
    }
    if (!reader.take('+')) break;
  }
  reader.expect_end();
  cell.concat = {static_cast<int64_t>(cell.nodes.size())};
  return cell;
}

}  // namespace tandem::models
