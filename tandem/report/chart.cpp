#include "tandem/report/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "tandem/base/format.h"
#include "tandem/report/detail/plot.h"
#include "tandem/report/detail/svg.h"

namespace tandem::report {
namespace {

using detail::class_of;
using detail::Plot;
using detail::text_width;
using Anchor = detail::Svg::Anchor;
using Points = std::vector<std::pair<double, double>>;

constexpr size_t kMaxPoints = 400;  // more than a point for every other pixel cannot be seen

struct Extent {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();

  void cover(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

/// Keeps the lowest and the highest point of each of kMaxPoints / 2 stretches, and the last point.
Points thinned(const Points& points) {
  if (points.size() <= kMaxPoints) return points;
  Points kept;
  const size_t stretches = kMaxPoints / 2;
  const auto lower = [](const auto& a, const auto& b) { return a.second < b.second; };
  for (size_t i = 0; i < stretches; ++i) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(i * points.size() / stretches);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>((i + 1) * points.size() / stretches);
    auto [low, high] = std::minmax_element(begin, end, lower);
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (high != low) kept.push_back(*high);
  }
  if (kept.back() != points.back()) kept.push_back(points.back());
  return kept;
}

/// Splits the points into runs without a y that is not finite.
std::vector<Points> pieces_of(const Points& points) {
  std::vector<Points> pieces(1);
  for (const auto& point : points) {
    if (std::isfinite(point.first) && std::isfinite(point.second))
      pieces.back().push_back(point);
    else if (!pieces.back().empty())
      pieces.emplace_back();
  }
  if (pieces.back().empty()) pieces.pop_back();
  return pieces;
}

void draw_series(detail::Svg& svg, const Plot& plot, const Series& series, size_t number) {
  constexpr size_t kFew = 24;
  for (const auto& piece : pieces_of(series.points)) {
    Points places;
    for (const auto& [x, y] : thinned(piece)) places.emplace_back(plot.x(x), plot.y(y));
    if (places.size() > 1) svg.polyline(places, std::string("curve ").append(class_of('s', number)));
    if (piece.size() > kFew) continue;
    for (const auto& [x, y] : piece) {
      svg.dot(plot.x(x), plot.y(y), class_of('d', number),
              series.name + " " + detail::short_number(y) + " at " + detail::short_number(x));
    }
  }
}

double peak_of(const CategoryBytes& rank) { return static_cast<double>(total_of(rank)); }

/// Draws the bars of one form between two places on the x axis.
void draw_bars(detail::Svg& svg, const Plot& plot, const MemoryBars& bars) {
  const double slot = plot.width / static_cast<double>(std::max<size_t>(bars.ranks.size(), 1));
  const double width = std::min(56.0, slot * 0.68);
  const auto every = static_cast<size_t>(std::ceil(22 / slot));
  for (size_t rank = 0; rank < bars.ranks.size(); ++rank) {
    const double middle = plot.left + slot * (static_cast<double>(rank) + 0.5);
    double below = 0;
    for (size_t i = 0; i < kCategoryNames.size(); ++i) {
      const auto bytes = static_cast<double>(bars.ranks[rank][i]);
      if (bytes <= 0) continue;
      const std::string hint =
          "rank " + std::to_string(rank) + ", " + std::string(kCategoryNames[i]) + ": " + format_bytes_short(bytes);
      svg.rectangle(middle - width / 2, plot.y(below + bytes), width, plot.y(below) - plot.y(below + bytes),
                    class_of('c', i), hint);
      below += bytes;
    }
    double label_y = plot.y(below);
    if (rank < bars.predicted.size()) {
      const double y = plot.y(static_cast<double>(bars.predicted[rank]));
      svg.line(middle - width / 2 - 5, y, middle + width / 2 + 5, y, "predicted");
      label_y = std::min(label_y, y);
    }
    if (slot >= 58)
      svg.text(middle, label_y - 6, format_bytes_short(peak_of(bars.ranks[rank])), "small strong", Anchor::middle);
    if (rank % every == 0) svg.text(middle, plot.top + plot.height + 17, std::to_string(rank), "small", Anchor::middle);
  }
}

}  // namespace

std::string line_chart_svg(const LineChart& chart) {
  Extent x, y;
  for (const auto& series : chart.series) {
    for (const auto& piece : pieces_of(series.points)) {
      for (const auto& [at, value] : piece) {
        x.cover(at);
        y.cover(value);
      }
    }
  }
  detail::Svg svg(456, 250, chart.title);
  svg.text(8, 18, chart.title, "title");
  const auto x_ticks = detail::nice_ticks(x.low, x.high, 5), y_ticks = detail::nice_ticks(y.low, y.high, 5);
  const auto y_labels = detail::tick_labels(y_ticks);
  double left = 30;
  for (const auto& label : y_labels) left = std::max(left, 18 + text_width(label));
  const bool has_width = x.high > x.low;
  const Plot plot{left,
                  36,
                  440 - left,
                  170,
                  has_width ? x.low : x_ticks.front(),
                  has_width ? x.high : x_ticks.back(),
                  y_ticks.front(),
                  y_ticks.back()};
  detail::draw_y_axis(svg, plot, y_ticks, y_labels);
  detail::draw_x_axis(svg, plot, x_ticks, chart.x_label);
  if (x.low > x.high) svg.text(plot.left + plot.width / 2, 120, "no data", "", Anchor::middle);
  double right = 440;
  for (size_t i = 0; i < chart.series.size(); ++i) {
    draw_series(svg, plot, chart.series[i], i % 7);
  }
  for (size_t i = chart.series.size(); i-- > 0 && chart.series.size() > 1;) {  // names, from the right edge
    right -= text_width(chart.series[i].name) + 4;
    svg.text(right, 18, chart.series[i].name, "small");
    svg.line(right - 18, 14, right - 5, 14, std::string("curve ").append(class_of('s', i % 7)));
    right -= 28;
  }
  return svg.str(false);
}

double highest_peak(std::span<const MemoryBars> forms) {
  double highest = 0;
  for (const auto& form : forms) {
    for (const auto& rank : form.ranks) highest = std::max(highest, peak_of(rank));
    for (const auto bytes : form.predicted) highest = std::max(highest, static_cast<double>(bytes));
  }
  return highest;
}

std::string memory_figure_svg(std::span<const MemoryBars> forms, const MemoryFigure& figure) {
  constexpr double kBottom = 52, kGap = 28;
  const bool has_prediction = std::ranges::any_of(forms, [](const auto& form) { return !form.predicted.empty(); });
  const auto legend = detail::legend_of(16, 52, figure.width - 16, has_prediction);
  const double top = legend.back().y + 44, height = top + 304;
  detail::Svg svg(figure.width, height, "Peak memory per rank by category");
  svg.text(16, 26, "Peak memory per rank", "title");
  detail::draw_legend(svg, legend);
  // A little more than the highest bar, so that its number has room.
  const auto ticks = detail::byte_ticks(std::max(highest_peak(forms), figure.reach) * 1.04, 8);
  std::vector<std::string> labels;
  for (const double tick : ticks) labels.push_back(format_bytes_short(tick));
  double left = 40;
  for (const auto& label : labels) left = std::max(left, 20 + text_width(label));
  Plot plot{left, top, figure.width - left - 16, height - top - kBottom, 0, 1, 0, ticks.back()};
  detail::draw_y_axis(svg, plot, ticks, labels);
  size_t ranks = 0;
  for (const auto& form : forms) ranks += std::max<size_t>(form.ranks.size(), 1);
  const double room = plot.width - kGap * static_cast<double>(forms.size());
  double x = left + kGap / 2;
  for (const auto& form : forms) {
    plot.left = x;
    plot.width = room * static_cast<double>(std::max<size_t>(form.ranks.size(), 1)) / static_cast<double>(ranks);
    svg.text(plot.left + plot.width / 2, top - 16, form.form, "strong", Anchor::middle);
    draw_bars(svg, plot, form);
    svg.line(plot.left, height - kBottom, plot.left + plot.width, height - kBottom, "axis");
    svg.text(plot.left + plot.width / 2, height - 16, "rank", "small", Anchor::middle);
    x += plot.width + kGap;
  }
  return svg.str(figure.stand_alone);
}

}  // namespace tandem::report
