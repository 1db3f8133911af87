#include "tandem/report/progress.h"

#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "tandem/base/log.h"
#include "tandem/base/terminal.h"

namespace tandem::report {
namespace {

constexpr int kBarCells = 10, kEighths = 8;
constexpr double kRedrawSeconds = 0.1, kLineSeconds = 10, kLongestSilence = 60, kLinePart = 0.1;

std::string format(const char* pattern, double number) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, number);
  return text;
}

/// "01:02", "1:01:02"; "?" if the time is unknown.
std::string format_time(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "?";
  const auto whole = static_cast<long>(seconds);
  char text[32];
  if (whole >= 3600) {
    std::snprintf(text, sizeof text, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%02ld:%02ld", whole / 60, whole % 60);
  }
  return text;
}

/// "5.1 step/s"; "2.5 s/step" if slower than one a second; "? step/s" before the first.
std::string format_rate(double per_second, const std::string& unit) {
  if (per_second <= 0) return "? " + unit + "/s";
  if (per_second < 1) return format("%.1f", 1 / per_second) + " s/" + unit;
  return format(per_second < 1000 ? "%.1f" : "%.0f", per_second) + " " + unit + "/s";
}

std::string format_bar(double part) {
  static constexpr const char* kParts[kEighths] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int filled = static_cast<int>(part * kBarCells * kEighths);
  std::string bar;
  for (int i = 0; i < filled / kEighths; ++i) bar += "█";
  bar += kParts[filled % kEighths];
  const int used = (filled + kEighths - 1) / kEighths;
  return "|" + bar + std::string(kBarCells - used, ' ') + "|";
}

/// Columns of a UTF-8 text in which each character takes one.
int width_of(std::string_view text) {
  return static_cast<int>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string cut(const std::string& text, int columns) {
  int width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] & 0xc0) != 0x80 && width++ == columns) return text.substr(0, i);
  }
  return text;
}

std::string format_line(const ProgressState& state, bool has_bar, size_t num_values) {
  const double per_second = state.seconds > 0 ? static_cast<double>(state.done - state.first) / state.seconds : 0;
  const auto done = std::to_string(state.done);
  std::string line = state.title + ": ", times = format_time(state.seconds);
  if (state.total > 0) {
    const double part = std::clamp(static_cast<double>(state.done) / static_cast<double>(state.total), 0.0, 1.0);
    const double percent = state.done < state.total ? std::min(std::round(part * 100), 99.0) : 100;
    line +=
        format("%3.0f%%", percent) + (has_bar ? format_bar(part) : "") + " " + done + "/" + std::to_string(state.total);
    const auto left = static_cast<double>(std::max<int64_t>(state.total - state.done, 0));
    times.append("<").append(per_second > 0 ? format_time(left / per_second) : "?");
  } else {
    line += done + " " + state.unit;
  }
  line += " [" + times + ", " + format_rate(per_second, state.unit);
  if (!state.rest.empty()) line += ", " + state.rest;
  for (size_t i = 0; i < num_values; ++i) line += ", " + state.values[i].first + "=" + state.values[i].second;
  return line + "]";
}

}  // namespace

double progress_clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string format_progress(const ProgressState& state, int columns) {
  size_t num_values = state.values.size();
  auto line = format_line(state, true, num_values);
  if (columns <= 0 || width_of(line) <= columns) return line;
  do line = format_line(state, false, num_values);
  while (width_of(line) > columns && num_values-- > 0);
  return cut(line, columns);
}

Progress::Progress(ProgressOptions options) : options_(std::move(options)) {
  if (!options_.clock) options_.clock = progress_clock;
  if (!options_.sink) options_.sink = log::raw;
  state_ = {options_.title, options_.first, options_.total, options_.first, 0, options_.unit, {}, {}};
  start_ = options_.start ? *options_.start : options_.clock();
  drawn_done_ = options_.first;
}

Progress::~Progress() {
  try {
    if (options_.shown && open_) options_.sink(format_progress(state_, columns()) + "\n", false);
  } catch (...) {
    // A bar that cannot be drawn must not end the program.
  }
}

int Progress::columns() const { return options_.columns.value_or(terminal_columns(STDERR_FILENO)); }

bool Progress::is_due(double now) const {
  if (columns() > 0) return !drawn_at_ || now - *drawn_at_ >= kRedrawSeconds;
  const double silence = now - drawn_at_.value_or(start_);
  const auto advance = static_cast<double>(state_.done - drawn_done_);
  const bool is_tenth = state_.total > 0 && advance >= kLinePart * static_cast<double>(state_.total);
  return silence >= kLongestSilence || (silence >= kLineSeconds && is_tenth);
}

void Progress::draw(double now, bool last) {
  const bool is_terminal = columns() > 0;
  state_.seconds = now - start_;
  open_ = is_terminal && !last;
  // One column stays free: a full line makes some terminals wrap.
  const auto line = format_progress(state_, is_terminal ? std::max(columns() - 1, 1) : 0);
  options_.sink(open_ ? line : line + "\n", open_);
  drawn_at_ = now;
  drawn_done_ = state_.done;
}

void Progress::update(int64_t done, const ProgressValues& values, const std::string& rest) {
  if (!options_.shown || finished_) return;
  state_.done = done;
  if (!values.empty()) state_.values = values;
  state_.rest = rest;
  const double now = options_.clock();
  if (is_due(now)) draw(now, false);
}

void Progress::finish() {
  if (!options_.shown || finished_) return;
  draw(options_.clock(), true);
  finished_ = true;
}

}  // namespace tandem::report
