#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tandem::report {

/// What a rank does for a while.
struct StepBar {
  enum class Kind : uint8_t { forward, backward, weight_gradients, waits };

  std::string name;  // "F3"
  Kind kind = Kind::forward;
  double begin = 0, end = 0;  // seconds
};

struct StepLane {
  std::string name;  // "rank 0"
  std::vector<StepBar> bars;
  std::vector<std::pair<double, double>> bytes;  // seconds, and what the rank holds from then on; empty: not known
};

/// One step of ranks that work on different parts of a model.
struct StepChart {
  std::string title, note;
  std::vector<StepLane> lanes;
};

/// A lane a rank over one axis of time, with what it holds as a curve above. An empty place is time without work.
std::string step_chart_svg(const StepChart& chart, bool stand_alone = true);

}  // namespace tandem::report
