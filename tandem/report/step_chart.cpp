#include "tandem/report/step_chart.h"

#include <algorithm>
#include <array>

#include "tandem/base/format.h"
#include "tandem/report/detail/plot.h"

namespace tandem::report {
namespace {

using detail::Plot;
using Anchor = detail::Svg::Anchor;

constexpr double kChartWidth = 920, kBarHeight = 20, kCurveHeight = 30, kLaneHeight = kBarHeight + kCurveHeight + 12;
constexpr std::array<std::pair<const char*, const char*>, 4> kKinds = {
    {{"forward", "c0"}, {"backward", "c2"}, {"weight gradients", "c3"}, {"waits", "band"}}};

const char* class_of(StepBar::Kind kind) { return kKinds[static_cast<size_t>(kind)].second; }

double end_of(const StepChart& chart) {
  double end = 0;
  for (const auto& lane : chart.lanes) {
    for (const auto& bar : lane.bars) end = std::max(end, bar.end);
  }
  return end;
}

double most_bytes(const StepLane& lane) {
  double most = 0;
  for (const auto& [seconds, bytes] : lane.bytes) most = std::max(most, bytes);
  return most;
}

std::string bytes_text(const StepLane& lane) {
  return lane.bytes.empty() ? "" : "to " + format_bytes_short(most_bytes(lane));
}

void draw_kinds(detail::Svg& svg, double y) {
  double x = 16;
  for (const auto& [name, classes] : kKinds) {
    svg.rectangle(x, y - 10, 11, 11, classes);
    svg.text(x + 16, y, name, "");
    x += 34 + detail::text_width(name);
  }
}

void draw_bars(detail::Svg& svg, const Plot& axis, const StepLane& lane, double top) {
  for (const auto& bar : lane.bars) {
    const double left = axis.x(bar.begin), width = std::max(0.3, axis.x(bar.end) - left - 0.4);
    const auto hint = bar.name + ", " + format_number("%.2f", (bar.end - bar.begin) * 1e3) + " ms";
    svg.rectangle(left, top, width, kBarHeight, class_of(bar.kind), hint);
    const bool has_room = detail::text_width(bar.name) + 2 <= width && bar.kind != StepBar::Kind::waits;
    if (has_room) svg.text(left + width / 2, top + 14.5, bar.name, "small", Anchor::middle);
  }
}

void draw_bytes(detail::Svg& svg, const Plot& axis, const StepLane& lane, double most) {
  std::vector<std::pair<double, double>> edge;
  for (const auto& [seconds, bytes] : lane.bytes) {
    const double x = axis.x(seconds), y = axis.top + axis.height * (1 - bytes / most);
    if (!edge.empty()) edge.emplace_back(x, edge.back().second);
    edge.emplace_back(x, y);
  }
  svg.polyline(edge, "curve s0");
}

}  // namespace

std::string step_chart_svg(const StepChart& chart, bool stand_alone) {
  double left = 40;
  double most = 0;
  for (const auto& lane : chart.lanes) {
    left = std::max({left, 28 + detail::text_width(lane.name), 28 + detail::text_width(bytes_text(lane))});
    most = std::max(most, most_bytes(lane));
  }
  const double top = 74, height = kLaneHeight * static_cast<double>(chart.lanes.size());
  detail::Svg svg(kChartWidth, top + height + 46, chart.title);
  svg.text(16, 26, chart.title, "title");
  draw_kinds(svg, 50);
  const double end = std::max(end_of(chart), 1e-9);
  const Plot axis{left, top, kChartWidth - left - 16, height, 0, end, 0, 1};
  for (size_t i = 0; i < chart.lanes.size(); ++i) {
    const auto& lane = chart.lanes[i];
    const double y = top + kLaneHeight * static_cast<double>(i);
    svg.text(16, y + kCurveHeight + 14.5, lane.name, "");
    svg.text(16, y + kCurveHeight - 4, bytes_text(lane), "small");
    Plot curve = axis;
    curve.top = y;
    curve.height = kCurveHeight - 4;
    if (most > 0 && !lane.bytes.empty()) draw_bytes(svg, curve, lane, most);
    draw_bars(svg, axis, lane, y + kCurveHeight);
  }
  detail::draw_x_axis(svg, axis, detail::nice_ticks(0, end, 8), "seconds");
  return svg.str(stand_alone);
}

}  // namespace tandem::report
