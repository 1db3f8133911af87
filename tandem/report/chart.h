#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/category.h"

namespace tandem::report {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x rises; a y that is not finite leaves a gap
};

/// Curves over one x axis, such as the loss over the steps.
struct LineChart {
  std::string title, x_label;
  std::vector<Series> series;
  std::string note = {};  // a sentence below the curves in a report
};

/// Bytes of each rank at its peak, in the order of kCategoryNames.
struct MemoryBars {
  std::string form;  // "sharded, measured"
  std::vector<CategoryBytes> ranks;
  std::vector<int64_t> predicted;  // peak of each rank; may be empty
};

/// An <svg> element for a page that contains chart_style(). A long series is thinned, but keeps its extremes.
std::string line_chart_svg(const LineChart& chart);

struct MemoryFigure {
  bool stand_alone = true;  // a file of its own
  double width = 920;       // a wider legend is broken into lines
  double reach = 0;         // the axis shows at least this many bytes
};

/// One bar per rank, stacked by category; the forms stand side by side over one axis of bytes.
std::string memory_figure_svg(std::span<const MemoryBars> forms, const MemoryFigure& figure = {});

/// The most bytes of any rank, predictions included.
double highest_peak(std::span<const MemoryBars> forms);

}  // namespace tandem::report
