#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tandem/report/detail/svg.h"

namespace tandem::report::detail {

/// The part of the picture that the data covers, and the values at its edges.
struct Plot {
  double left, top, width, height;
  double x_low, x_high, y_low, y_high;

  double x(double value) const { return left + width * (value - x_low) / (x_high - x_low); }
  double y(double value) const { return top + height * (1 - (value - y_low) / (y_high - y_low)); }
};

/// "c3": the style's class of one category, curve or dot.
std::string class_of(char kind, size_t number);

/// Estimates the width of 12 pixel text in a common font, rather too wide than too narrow.
double text_width(std::string_view text);

void draw_x_axis(Svg& svg, const Plot& plot, const std::vector<double>& ticks, const std::string& label);
void draw_y_axis(Svg& svg, const Plot& plot, const std::vector<double>& ticks, const std::vector<std::string>& labels);

struct LegendEntry {
  std::string_view name;
  double x, y;
};

/// The names of the categories and, last, of the prediction's mark, in lines that end before `right`.
std::vector<LegendEntry> legend_of(double left, double y, double right, bool with_prediction);
void draw_legend(Svg& svg, const std::vector<LegendEntry>& entries);

}  // namespace tandem::report::detail
