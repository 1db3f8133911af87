#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::report {

/// The values shown after the rate, already formatted: {"loss", "9.31"}.
using ProgressValues = std::vector<std::pair<std::string, std::string>>;

struct ProgressState {
  std::string title;  // "epoch 1"
  int64_t done = 0;
  int64_t total = 0;   // 0: unknown
  int64_t first = 0;   // done before the clock started (a job that was resumed)
  double seconds = 0;  // since the clock started
  std::string unit = "step";
  ProgressValues values = {};
  std::string rest = {};  // of more than this bar: "3 m left"; "": nothing
};

/// One line in tqdm's layout, at most `columns` wide (0: any width):
///   epoch 1:  42%|████▏     | 320/763 [01:02<01:27, 5.1 step/s, 3 m left, loss=9.31, lr=0.18]
/// If the line is too long, the bar is left out, then the values from the last on; then the line is cut.
std::string format_progress(const ProgressState& state, int columns);

struct ProgressOptions {
  std::string title;
  int64_t total = 0;
  int64_t first = 0;
  bool shown = true;  // set it to false on all ranks but one: calls then do nothing
  std::string unit = "step";
  std::optional<double> start = {};  // when the first one began, on the clock; otherwise now

  // For tests. Default to those of this process.
  std::function<double()> clock = {};                                    // seconds; progress_clock()
  std::function<void(std::string_view text, bool open_line)> sink = {};  // log::raw
  std::optional<int> columns = {};                                       // 0: not a terminal
};

/// Seconds on the clock of this process.
double progress_clock();

/// A progress bar on stderr. On a terminal it is one line, redrawn at most ten times a second. Elsewhere it prints a
/// line for each 10 % of the total, at most one in 10 s, but at least one a minute. The last line stays. Must be used
/// by one thread.
class Progress {
 public:
  explicit Progress(ProgressOptions options);
  ~Progress();  // leaves the last line on the terminal; never throws
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(int64_t done, const ProgressValues& values = {}, const std::string& rest = "");

  /// Draws the last line. Later calls do nothing.
  void finish();

 private:
  bool is_due(double now) const;
  int columns() const;
  void draw(double now, bool last);

  ProgressOptions options_;
  ProgressState state_;
  double start_ = 0;
  std::optional<double> drawn_at_;
  int64_t drawn_done_ = 0;
  bool open_ = false, finished_ = false;
};

}  // namespace tandem::report
