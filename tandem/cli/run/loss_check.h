#pragma once
#include <optional>
#include <string>

#include "tandem/cli/run/history.h"
#include "tandem/train/scores.h"

namespace tandem::cli {

/// The scores of a model that guesses.
struct ChanceLevel {
  int64_t classes = 0;
  bool is_plain = false;  // the loss is a softmax over all classes: chance is ln(classes)
};

/// Returns a warning if a run learns nothing: "loss has not fallen: 3.9 at step 1, 52.3 on average of steps 46..60
/// (chance is 3.91): lower train.lr, train longer". That is if the average loss of the last quarter of the steps is not
/// below the loss of step 1 (or chance, if known), or if it is hardly below that of the quarter before and there is a
/// test. Returns "" if top-1 of the test is better than chance by three standard deviations, before step 50, and if the
/// loss of step 1 is missing.
std::string stuck_loss(const Curve& losses, const ChanceLevel& chance, const std::optional<train::Scores>& scores);

}  // namespace tandem::cli
