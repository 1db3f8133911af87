#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "tandem/base/category.h"

namespace tandem::report {

/// A stretch of a step: a phase, or a block of the model in a phase.
struct Band {
  std::string name;
  double begin = 0, end = 0;  // seconds
};

/// What a rank holds over one step.
struct MemoryCurve {
  std::string name;                 // "resnet50, recompute=sqrt"
  std::vector<double> seconds;      // rises
  std::vector<CategoryBytes> live;  // from that time on, in the order of kCategoryNames
  size_t peak = 0;                  // index of the highest
  std::vector<Band> phases, blocks;
};

struct MemoryCurveFigure {
  bool stand_alone = true;         // a file of its own
  double reach = 0, duration = 0;  // the axes show at least so many bytes and seconds, to compare figures
};

/// Categories stacked over time, with the phases and blocks below and the peak marked.
std::string memory_curve_svg(const MemoryCurve& curve, const MemoryCurveFigure& figure = {});

/// Bytes at the peak; 0 for an empty curve.
double peak_of(const MemoryCurve& curve);

}  // namespace tandem::report
