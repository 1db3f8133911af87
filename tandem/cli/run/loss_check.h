#pragma once
#include <optional>
#include <string>

#include "tandem/cli/run/history.h"
#include "tandem/train/evaluate.h"

namespace tandem::cli {

/// What a model that knows nothing reaches.
struct ChanceLevel {
  int64_t classes = 0;
  bool is_plain = false;  // the loss is a softmax over all classes: chance is ln(classes)
};

/// A line for a run that learns nothing: "loss has not fallen: 3.9 at step 1, 52.3 on average of steps 46..60 (chance
/// is 3.91): lower train.lr, train longer". Empty when the last quarter's losses are lower than that of step 1 (and
/// than chance, where it is known), when the test's top-1 is better than chance by three standard deviations, before
/// step 50, and without the loss of step 1.
std::string stuck_loss(const Curve& losses, const ChanceLevel& chance, const std::optional<train::Scores>& scores);

}  // namespace tandem::cli
