#include "tandem/report/detail/plot.h"

#include "tandem/base/category.h"

namespace tandem::report::detail {

std::string class_of(char kind, size_t number) { return {kind, static_cast<char>('0' + number)}; }

void draw_x_axis(Svg& svg, const Plot& plot, const std::vector<double>& ticks, const std::string& label) {
  const double bottom = plot.top + plot.height;
  const auto labels = tick_labels(ticks);
  for (size_t i = 0; i < ticks.size(); ++i) {
    if (ticks[i] < plot.x_low - 1e-9 || ticks[i] > plot.x_high * (1 + 1e-9)) continue;
    svg.line(plot.x(ticks[i]), bottom, plot.x(ticks[i]), bottom + 4, "axis");
    svg.text(plot.x(ticks[i]), bottom + 17, labels[i], "small", Svg::Anchor::middle);
  }
  svg.line(plot.left, bottom, plot.left + plot.width, bottom, "axis");
  svg.text(plot.left + plot.width / 2, bottom + 33, label, "small", Svg::Anchor::middle);
}

void draw_y_axis(Svg& svg, const Plot& plot, const std::vector<double>& ticks, const std::vector<std::string>& labels) {
  for (size_t i = 0; i < ticks.size(); ++i) {
    svg.line(plot.left, plot.y(ticks[i]), plot.left + plot.width, plot.y(ticks[i]), "grid");
    svg.text(plot.left - 8, plot.y(ticks[i]) + 4, labels[i], "small", Svg::Anchor::end);
  }
}

double text_width(std::string_view text) {
  double width = 0;
  for (const char letter : text) {
    const bool narrow = std::string_view("ijlftr.,:;'|!()[] ").find(letter) != std::string_view::npos;
    const bool wide = std::string_view("mwMW%@").find(letter) != std::string_view::npos;
    const bool inside_utf8 = (static_cast<unsigned char>(letter) & 0xC0) == 0x80;
    width += inside_utf8 ? 2.5 : narrow ? 4.6 : wide ? 11.0 : letter >= 'A' && letter <= 'Z' ? 8.6 : 7.4;
  }
  return width;
}

std::vector<LegendEntry> legend_of(double left, double y, double right, bool with_prediction) {
  constexpr double kMark = 16, kGap = 16, kLine = 19;
  std::vector<std::string_view> names(kCategoryNames.begin(), kCategoryNames.end());
  if (with_prediction) names.emplace_back("predicted");
  std::vector<LegendEntry> entries;
  double x = left;
  for (const auto name : names) {
    const double width = kMark + text_width(name);
    if (x > left && x + width > right) {
      x = left;
      y += kLine;
    }
    entries.push_back({name, x, y});
    x += width + kGap;
  }
  return entries;
}

void draw_legend(Svg& svg, const std::vector<LegendEntry>& entries) {
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto& [name, x, y] = entries[i];
    if (i < kCategoryNames.size()) {
      svg.rectangle(x, y - 10, 11, 11, class_of('c', i));
      svg.text(x + 16, y, name, "");
    } else {
      svg.line(x, y - 4, x + 18, y - 4, "predicted");
      svg.text(x + 23, y, name, "");
    }
  }
}

}  // namespace tandem::report::detail
