#include "tandem/report/time_left.h"

#include <chrono>
#include <cmath>
#include <cstdio>

namespace tandem::report {
namespace {

constexpr size_t kLastSteps = 256;
constexpr long kMinute = 60, kHour = 60 * kMinute, kDay = 24 * kHour;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

TimeLeft::TimeLeft(TimeLeftOptions options) : options_(std::move(options)), done_(options_.first) {
  if (!options_.clock) options_.clock = steady_seconds;
}

void TimeLeft::step_ended(int64_t step) {
  done_ = step;
  is_tested_ = false;
  ends_.push_back(options_.clock() - in_tests_);
  if (ends_.size() > kLastSteps + 1) ends_.pop_front();
}

void TimeLeft::test_began() {
  if (!test_began_) test_began_ = options_.clock();
}

void TimeLeft::test_ended() {
  if (!test_began_) return;
  last_test_ = options_.clock() - *test_began_;
  in_tests_ += last_test_;
  test_began_.reset();
  is_tested_ = true;
}

/// The end is tested, if it is not when a test is due anyway.
int64_t TimeLeft::tests_to_come() const {
  if (!options_.has_tests || (done_ >= options_.steps && is_tested_)) return 0;
  if (options_.test_every == 0) return 1;
  const int64_t every = options_.test_every, before = is_tested_ ? done_ : std::max<int64_t>(done_ - 1, 0);
  const int64_t due = options_.steps / every - before / every;
  return due + (options_.steps % every == 0 ? 0 : 1);
}

std::optional<double> TimeLeft::seconds() const {
  if (ends_.size() < 2) return std::nullopt;
  const double a_step = (ends_.back() - ends_.front()) / static_cast<double>(ends_.size() - 1);
  const auto steps = static_cast<double>(std::max<int64_t>(options_.steps - done_, 0));
  return steps * a_step + static_cast<double>(tests_to_come()) * last_test_;
}

std::string TimeLeft::text() const {
  const auto left = seconds();
  if (!left || done_ >= options_.steps) return "";
  return format_duration(*left) + " left";
}

std::string format_duration(double seconds) {
  char text[48];
  const auto rounded = [&](long unit) { return std::lround(seconds / static_cast<double>(unit)) * unit; };
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e11) return "?";
  if (const long whole = rounded(1); whole < kMinute) {
    std::snprintf(text, sizeof text, "%ld s", whole);
  } else if (const long minutes = rounded(kMinute); minutes < kHour) {
    std::snprintf(text, sizeof text, "%ld m", minutes / kMinute);
  } else if (minutes < kDay) {
    std::snprintf(text, sizeof text, "%ld h %02ld m", minutes / kHour, minutes % kHour / kMinute);
  } else {
    const long hours = rounded(kHour);
    std::snprintf(text, sizeof text, "%ld d %ld h", hours / kDay, hours % kDay / kHour);
  }
  return text;
}

}  // namespace tandem::report
