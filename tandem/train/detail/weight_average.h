#pragma once
#include <vector>

#include "tandem/train/parameter.h"

namespace tandem::train::detail {

/// Exponential moving averages of weights, as a model of its own:
///
///   average += (1 - decay) * (weight - average)      after each step; they begin as the weights are
///
/// Each rank averages what it holds, so there is no message, and on CPUs the bits of a number do not depend on how its
/// tensor has been cut. Memory: as much as the weights. Source: Polyak and Juditsky 1992, Acceleration of stochastic
/// approximation by averaging; torch.optim.swa_utils.get_ema_avg_fn.
class WeightAverage {
 public:
  /// `weights`: what this rank trains, as it holds it. Throws SettingsError if the decay is not between 0 and 1, both
  /// left out.
  WeightAverage(std::vector<Parameter> weights, double decay);

  void step();

  /// Gives each weight the value of its average, and the average that of the weight.
  void swap();

  /// The averages, under the names of the weights, and the weights, as a checkpoint holds them beside the averages
  /// ("optimizer.weight.<name>").
  std::vector<Parameter> averages() const;
  std::vector<Parameter> weights() const;

  double decay() const { return decay_; }

 private:
  std::vector<Parameter> weights_;
  std::vector<Tensor> averages_;
  double decay_;
};

}  // namespace tandem::train::detail
