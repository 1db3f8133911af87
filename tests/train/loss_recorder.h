#pragma once
#include <optional>
#include <vector>

#include "tandem/train/trainer.h"

namespace tandem::train {

/// The loss of each step that is logged.
struct LossRecorder : Observer {
  std::vector<double> losses;
  void on_step(int64_t, int64_t, double, std::optional<double> loss) override { losses.push_back(*loss); }
};

}  // namespace tandem::train
