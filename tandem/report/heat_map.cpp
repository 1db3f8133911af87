#include "tandem/report/heat_map.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tandem/base/format.h"
#include "tandem/base/quote.h"
#include "tandem/report/detail/svg.h"

namespace tandem::report {
namespace {

using detail::Svg;

constexpr double kWidth = 620, kMostCell = 46, kLeastCell = 7;  // of all cells together, of a side
constexpr double kNamesCell = 12, kNumbersCell = 22;            // cells that leave room for them
constexpr double kLetter = 6.6, kMostName = 150, kPad = 12, kTitle = 26;
constexpr double kLeastWidth = 380;  // for the title
constexpr int kShades = 8;

/// The first letters of a name that fit.
std::string shortened(const std::string& name) {
  constexpr size_t kMost = 22;
  size_t letters = 0, at = 0;
  for (; at < name.size() && letters < kMost; ++letters) at += std::max<size_t>(1, utf8_length(name, at));
  return at < name.size() ? name.substr(0, at) + "…" : name;
}

struct Layout {
  double cell, left, top;
  bool has_names, has_numbers;
  double width, height;
};

Layout layout_of(const HeatMap& map) {
  const auto count = static_cast<double>(std::max<size_t>(1, map.names.size()));
  Layout layout{};
  layout.cell = std::clamp(kWidth / count, kLeastCell, kMostCell);
  layout.has_names = layout.cell >= kNamesCell;
  layout.has_numbers = layout.cell >= kNumbersCell;
  double longest = 0;
  for (const auto& name : map.names) longest = std::max(longest, static_cast<double>(shortened(name).size()) * kLetter);
  const double names = layout.has_names ? std::min(longest, kMostName) + kPad : 0;
  layout.left = kPad + 20 + names;
  layout.top = kTitle + 20 + names;
  layout.width = std::max(kLeastWidth, layout.left + layout.cell * count + kPad + names);
  layout.height = layout.top + layout.cell * count + kPad;
  return layout;
}

/// 0: none of the row; kShades: all of it. The least count is visible.
int shade_of(int64_t count, int64_t row) {
  if (count == 0) return 0;
  const double share = std::sqrt(static_cast<double>(count) / static_cast<double>(row));
  return std::max(1, static_cast<int>(std::lround(share * kShades)));
}

void draw_cells(Svg& svg, const HeatMap& map, const Layout& layout) {
  for (size_t row = 0; row < map.names.size(); ++row) {
    const auto& counts = map.counts.at(row);
    const auto sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    for (size_t column = 0; column < counts.size(); ++column) {
      if (counts[column] == 0) continue;
      const double x = layout.left + layout.cell * static_cast<double>(column);
      const double y = layout.top + layout.cell * static_cast<double>(row);
      const int shade = shade_of(counts[column], sum);
      const std::string colour = row == column ? "c0" : "c5";
      svg.rectangle(x, y, layout.cell - 1, layout.cell - 1, colour + " o" + std::to_string(shade),
                    map.names[row] + (row == column ? " is right in " : " is taken for " + map.names[column] + " in ") +
                        format_count(counts[column]) + " of " + format_count(sum));
      if (!layout.has_numbers) continue;
      svg.text(x + layout.cell / 2 - 0.5, y + layout.cell / 2 + 4, format_count(counts[column]),
               shade > kShades / 2 ? "on" : "strong", Svg::Anchor::middle);
    }
  }
}

void draw_names(Svg& svg, const HeatMap& map, const Layout& layout) {
  if (!layout.has_names) return;
  for (size_t i = 0; i < map.names.size(); ++i) {
    const double middle = layout.cell * (static_cast<double>(i) + 0.5);
    const auto name = shortened(map.names[i]);
    svg.text(layout.left - 6, layout.top + middle + 4, name, "small", Svg::Anchor::end);
    svg.text(layout.left + middle + 3, layout.top - 6, name, "small", Svg::Anchor::start, -60);
  }
}

}  // namespace

std::string heat_map_svg(const HeatMap& map, bool stand_alone) {
  const auto layout = layout_of(map);
  const double side = layout.cell * static_cast<double>(map.names.size());
  Svg svg(layout.width, layout.height, map.title);
  svg.rectangle(0, 0, layout.width, layout.height, "surface");
  svg.text(kPad, kTitle - 6, map.title, "title");
  svg.rectangle(layout.left, layout.top, side, side, "band o1");
  draw_cells(svg, map, layout);
  draw_names(svg, map, layout);
  svg.text(kPad + 8, layout.top + side / 2, map.row_label, "strong", Svg::Anchor::middle, -90);
  svg.text(layout.left + side / 2, kTitle + 14, map.column_label, "strong", Svg::Anchor::middle);
  return svg.str(stand_alone);
}

}  // namespace tandem::report
