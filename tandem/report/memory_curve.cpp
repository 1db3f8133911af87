#include "tandem/report/memory_curve.h"

#include <algorithm>

#include "tandem/base/format.h"
#include "tandem/report/detail/plot.h"

namespace tandem::report {
namespace {

using detail::Plot;
using Anchor = detail::Svg::Anchor;
using Points = std::vector<std::pair<double, double>>;

/// The upper edge of the categories 0..`last`, in steps: memory changes at once.
Points edge_of(const MemoryCurve& curve, const Plot& plot, size_t last) {
  Points edge;
  for (size_t i = 0; i < curve.seconds.size(); ++i) {
    int64_t bytes = 0;
    for (size_t k = 0; k <= last; ++k) bytes += curve.live[i][k];
    const double x = plot.x(curve.seconds[i]), y = plot.y(static_cast<double>(bytes));
    if (!edge.empty()) edge.emplace_back(x, edge.back().second);
    edge.emplace_back(x, y);
  }
  return edge;
}

/// From the top down, each area reaches to the axis and hides the lower part of the one before.
void draw_areas(detail::Svg& svg, const Plot& plot, const MemoryCurve& curve) {
  const double bottom = plot.top + plot.height;
  for (size_t i = kCategoryNames.size(); i-- > 0;) {
    auto area = edge_of(curve, plot, i);
    area.emplace_back(area.back().first, bottom);
    area.emplace_back(area.front().first, bottom);
    svg.polygon(area, detail::class_of('c', i), std::string(kCategoryNames[i]));
  }
}

void draw_bands(detail::Svg& svg, const Plot& plot, const std::vector<Band>& bands, double top) {
  constexpr double kHeight = 17;
  for (size_t i = 0; i < bands.size(); ++i) {
    const auto& [name, begin, end] = bands[i];
    const double left = plot.x(begin), width = plot.x(end) - left;
    svg.rectangle(left, top, width, kHeight, i % 2 == 0 ? "band" : "band other", name);
    if (detail::text_width(name) + 4 <= width) {
      svg.text(left + width / 2, top + 12.5, name, "small", Anchor::middle);
    }
  }
}

void draw_peak(detail::Svg& svg, const Plot& plot, const MemoryCurve& curve) {
  const double bytes = peak_of(curve), x = plot.x(curve.seconds[curve.peak]), y = plot.y(bytes);
  svg.line(plot.left, y, plot.left + plot.width, y, "predicted");
  svg.dot(x, y, "mark", "peak");
  const auto text = "peak " + format_bytes_short(bytes);
  const bool has_room = x + 8 + detail::text_width(text) < plot.left + plot.width;
  svg.text(has_room ? x + 8 : x - 8, y - 7, text, "strong", has_room ? Anchor::start : Anchor::end);
}

}  // namespace

double peak_of(const MemoryCurve& curve) {
  return curve.live.empty() ? 0 : static_cast<double>(total_of(curve.live[curve.peak]));
}

std::string memory_curve_svg(const MemoryCurve& curve, const MemoryCurveFigure& figure) {
  constexpr double kWidth = 920, kHeight = 300, kBelow = 100;
  const auto legend = detail::legend_of(16, 52, kWidth - 16, false);
  const double top = legend.back().y + 36;
  detail::Svg svg(kWidth, top + kHeight + kBelow, "Memory over one training step: " + curve.name);
  svg.text(16, 26, curve.name, "title");
  detail::draw_legend(svg, legend);
  const auto ticks = detail::byte_ticks(std::max(peak_of(curve), figure.reach) * 1.08, 8);
  std::vector<std::string> labels;
  for (const double tick : ticks) labels.push_back(format_bytes_short(tick));
  double left = 40;
  for (const auto& label : labels) left = std::max(left, 20 + detail::text_width(label));
  const double last = curve.seconds.empty() ? 0 : curve.seconds.back();
  const double duration = std::max({last, figure.duration, 1e-9});
  const Plot plot{left, top, kWidth - left - 16, kHeight, 0, duration, 0, ticks.back()};
  detail::draw_y_axis(svg, plot, ticks, labels);
  if (!curve.live.empty()) {
    draw_areas(svg, plot, curve);
    draw_peak(svg, plot, curve);
  }
  const double bottom = plot.top + plot.height;
  draw_bands(svg, plot, curve.phases, bottom + 4);
  draw_bands(svg, plot, curve.blocks, bottom + 23);
  Plot axis = plot;
  axis.height += 42;
  detail::draw_x_axis(svg, axis, detail::nice_ticks(0, duration, 8), "seconds");
  return svg.str(figure.stand_alone);
}

}  // namespace tandem::report
