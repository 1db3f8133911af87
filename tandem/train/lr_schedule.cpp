#include "tandem/train/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem::train {
namespace {

constexpr double kOneCycleStart = 25.0, kOneCycleEnd = 1e4;

double cosine_between(double from, double to, double part) {
  return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * part));
}

double one_cycle(const ScheduleOptions& options, double step) {
  const double start = options.lr / kOneCycleStart, end = start / kOneCycleEnd;
  const double top = options.warmup * static_cast<double>(options.steps) - 1;
  const double last = static_cast<double>(options.steps) - 1;
  if (step <= top && top > 0) return cosine_between(start, options.lr, step / top);
  return cosine_between(options.lr, end, last > top ? (step - top) / (last - top) : 1.0);
}

}  // namespace

double learning_rate(const ScheduleOptions& options, int64_t step) {
  const auto at = static_cast<double>(step);
  if (options.kind == ScheduleKind::onecycle) return one_cycle(options, at);
  const double rise = std::floor(options.warmup * static_cast<double>(options.steps));
  if (at < rise) return options.lr * (at + 1) / rise;
  switch (options.kind) {
    case ScheduleKind::cosine: {
      const auto from = std::max(static_cast<double>(step / options.every * options.every), rise);
      const double part = (from - rise) / std::max(1.0, static_cast<double>(options.steps) - rise);
      return cosine_between(options.lr, options.least, part);
    }
    case ScheduleKind::step: {
      const auto passed = std::count_if(options.milestones.begin(), options.milestones.end(),
                                        [&](int64_t milestone) { return step >= milestone; });
      return options.lr * std::pow(options.gamma, static_cast<double>(passed));
    }
    default:
      return options.lr;
  }
}

}  // namespace tandem::train
