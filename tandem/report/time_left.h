#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

namespace tandem::report {

struct TimeLeftOptions {
  int64_t steps = 0;       // of the whole training
  int64_t first = 0;       // done before this object was made, as by a run that is resumed
  int64_t test_every = 0;  // steps between two tests; 0: at the end only
  bool has_tests = true;
  std::function<double()> clock = {};  // seconds; for tests. Defaults to that of this process
};

/// How long a training takes from now on, told by the time of its last steps, and of its last test for each test to
/// come. What lies between steps, such as a save, counts with them; the first step, which takes longer, does not. Not
/// thread-safe.
class TimeLeft {
 public:
  explicit TimeLeft(TimeLeftOptions options);

  void step_ended(int64_t step);  // counted from 1
  void test_began();              // of the model after the last step; calls during a test are ignored
  void test_ended();

  /// Seconds; nullopt before the second step has ended.
  std::optional<double> seconds() const;

  /// "3 m left"; "" if the time is not known or nothing is left.
  std::string text() const;

 private:
  int64_t tests_to_come() const;

  TimeLeftOptions options_;
  int64_t done_;
  std::deque<double> ends_;  // of the last steps, on a clock that stands still during tests
  double in_tests_ = 0, last_test_ = 0;
  std::optional<double> test_began_;
  bool is_tested_ = false;  // after the last step
};

/// "40 s", "3 m", "2 h 05 m", "3 d 4 h".
std::string format_duration(double seconds);

}  // namespace tandem::report
