#pragma once
#include <optional>
#include <string>

#include "tandem/storage/fields.h"
#include "tandem/train/scores.h"

namespace tandem::train::detail {

/// The best test of a run by one of its scores. A test counts as the best once the state that was tested is saved: the
/// checkpoint says so itself, and so do those after it.
class BestSoFar {
 public:
  /// `metric`: the name of a score; empty: no test is the best.
  explicit BestSoFar(std::string metric) : metric_(std::move(metric)) {}

  /// Looks at the test after `step`. Throws SettingsError if the test does not measure the score.
  void judge(int64_t step, const Scores& scores);

  /// Whether a test after this step is better than all before and not saved yet.
  bool awaits_save(int64_t step) const { return found_ && found_->step == step; }

  /// What a checkpoint of `step` says of the best test up to there.
  storage::Fields numbers(int64_t step) const;

  /// Called when a checkpoint of `step` has been saved. Returns whether the test after this step has become the best.
  bool saved(int64_t step);

  /// Goes on from what a checkpoint says. The best test by another score is forgotten.
  void resume(const storage::Fields& numbers);

  const std::optional<BestTest>& test() const { return kept_; }

 private:
  const std::optional<BestTest>& up_to(int64_t step) const { return awaits_save(step) ? found_ : kept_; }

  std::string metric_;
  std::optional<BestTest> kept_, found_;  // found: better than kept, and not saved
};

}  // namespace tandem::train::detail
