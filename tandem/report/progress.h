#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::report {

/// What stands behind the rate, already written: {"loss", "9.31"}.
using ProgressValues = std::vector<std::pair<std::string, std::string>>;

struct ProgressState {
  std::string title;  // "epoch 1"
  int64_t done = 0;
  int64_t total = 0;   // 0: not known
  int64_t first = 0;   // done before the clock started (a job that was resumed)
  double seconds = 0;  // since the clock started
  std::string unit = "step";
  ProgressValues values = {};
};

/// One line in tqdm's layout, at most `columns` wide (0: any width):
///   epoch 1:  42%|████▏     | 320/763 [01:02<01:27, 5.1 step/s, loss=9.31, lr=0.18]
/// Where there is too little room it leaves out the bar, then the values from the last on, then cuts.
std::string format_progress(const ProgressState& state, int columns);

struct ProgressOptions {
  std::string title;
  int64_t total = 0;
  int64_t first = 0;
  bool shown = true;  // false on all ranks but one: every call does nothing
  std::string unit = "step";

  // For tests; by default those of this process.
  std::function<double()> clock = {};                                    // seconds
  std::function<void(std::string_view text, bool open_line)> sink = {};  // log::raw
  std::optional<int> columns = {};                                       // 0: not a terminal
};

/// A progress bar on stderr. On a terminal one line that is drawn anew at most ten times a second; elsewhere a line
/// each 10 % of the total, no two within 10 s, but one a minute. The last line stays. One thread uses it.
class Progress {
 public:
  explicit Progress(ProgressOptions options);
  ~Progress();  // leaves the last line drawn; never throws
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(int64_t done, const ProgressValues& values = {});

  /// Draws the end and leaves it. Later calls do nothing.
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
