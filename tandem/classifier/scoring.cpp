#include "tandem/classifier/scoring.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

namespace tandem::classifier {

Scoring plain_softmax() { return {}; }
Scoring linear_softmax() { return {.has_bias = true}; }

bool is_plain_softmax(const Scoring& scoring) {
  return !scoring.normalise_features && !scoring.normalise_weight && scoring.scale == 1.0 && scoring.margin.is_none();
}

Scoring normalised_softmax(double scale) {
  return {.normalise_features = true, .normalise_weight = true, .scale = scale};
}

Scoring combined_margin(double scale, double factor, double angle, double cosine) {
  auto scoring = normalised_softmax(scale);
  scoring.margin = {.factor = factor, .angle = angle, .cosine = cosine};
  return scoring;
}

Scoring cosface(double scale, double margin) { return combined_margin(scale, 1.0, 0.0, margin); }

Scoring arcface(double scale, double margin) { return combined_margin(scale, 1.0, margin, 0.0); }

Scoring sphereface(double factor, double softening) {
  return {.normalise_weight = true, .margin = {.factor = factor, .softening = softening}};
}

Scoring large_margin_softmax(double factor, double softening) {
  return {.margin = {.factor = factor, .softening = softening}};
}

void check_scoring(const Scoring& scoring) {
  const auto& margin = scoring.margin;
  const auto finite = [](double value) { return std::isfinite(value); };
  TORCH_CHECK_VALUE(finite(scoring.scale) && scoring.scale > 0, "softmax loss: scale is ", scoring.scale,
                    ", wanted a positive number");
  TORCH_CHECK_VALUE(finite(margin.factor) && margin.factor > 0, "softmax loss: the margin's factor is ", margin.factor,
                    ", wanted a positive number");
  TORCH_CHECK_VALUE(finite(margin.angle) && margin.angle >= 0, "softmax loss: the margin's angle is ", margin.angle,
                    ", wanted 0 or more");
  TORCH_CHECK_VALUE(finite(margin.cosine), "softmax loss: the margin's cosine is ", margin.cosine,
                    ", wanted a finite number");
  TORCH_CHECK_VALUE(finite(margin.softening) && margin.softening >= 0, "softmax loss: the margin's softening is ",
                    margin.softening, ", wanted 0 or more");
  TORCH_CHECK_VALUE(margin.beyond != Beyond::linear || margin.factor == 1.0,
                    "softmax loss: beyond=linear has a factor of ", margin.factor, ", wanted 1");
  TORCH_CHECK_VALUE(scoring.smoothing >= 0 && scoring.smoothing < 1, "softmax loss: smoothing is ", scoring.smoothing,
                    ", wanted at least 0 and less than 1");
  const bool has_cosines = scoring.normalise_features && scoring.normalise_weight;
  TORCH_CHECK_VALUE(scoring.filter >= 1.0 || (has_cosines && scoring.filter > -1.0), "softmax loss: filter is ",
                    scoring.filter, ", wanted 1 (none), or a cosine with normalised features and weight");
}

double Annealing::at(long step) const {
  return std::max(least, base * std::pow(1.0 + gamma * static_cast<double>(step), -power));
}

}  // namespace tandem::classifier
