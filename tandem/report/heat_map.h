#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::report {

/// Counts of what is taken for what: rows are the classes of things, columns what they were taken for.
struct HeatMap {
  std::string title;
  std::vector<std::string> names;            // of the classes
  std::vector<std::vector<int64_t>> counts;  // [names][names]
  std::string row_label, column_label;       // "class", "taken for"
};

/// An <svg> element for a page that contains chart_style(), or a file of its own. A cell is the darker, the larger its
/// share of the row is: blue on the diagonal, orange beside it. Hovering tells names and counts; with many classes,
/// names and numbers that would not fit are left out.
std::string heat_map_svg(const HeatMap& map, bool stand_alone = true);

}  // namespace tandem::report
