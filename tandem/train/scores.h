#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::train {

enum class ScoreUnit : uint8_t { plain, fraction };  // fraction of 1, shown in percent
enum class Better : uint8_t { higher, lower };

/// One number of an evaluation.
struct Score {
  std::string name;   // in files: "top1"
  std::string label;  // for people: "top-1"
  double value = 0;
  ScoreUnit unit = ScoreUnit::plain;
  Better better = Better::higher;
};

/// The numbers of an evaluation, in the order in which they are shown.
struct Scores {
  std::vector<Score> list;
  int64_t samples = 0;  // that they are about; 0: nothing was evaluated

  /// The value of a score; 0 if there is none of this name.
  double value(std::string_view name) const {
    for (const auto& score : list) {
      if (score.name == name) return score.value;
    }
    return 0;
  }
};

/// The test of a run, over all its starts, with the best value of one score.
struct BestTest {
  std::string metric;  // the score's name
  double value = 0;
  int64_t step = 0;
};

}  // namespace tandem::train
