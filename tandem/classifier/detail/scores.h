#pragma once
#include <utility>

#include "tandem/classifier/softmax_loss.h"

namespace tandem::classifier::detail {

/// What the scores' gradient needs again. Norms are inverted, [N, 1] and [C_local, 1]; undefined when not normalised.
struct ScoreParts {
  Tensor scores;    // [C_local, N]
  Tensor features;  // [N, D] of length 1 when normalised
  Tensor inverse_feature_norms, inverse_weight_norms;
};

ScoreParts forward_scores(const Tensor& features, const Tensor& weight, const Scoring& scoring);

/// Gradients of features (this rank's share) and weight from the scores' gradient [C_local, N].
std::pair<Tensor, Tensor> backward_scores(const Tensor& score_gradient, const ScoreParts& parts, const Tensor& weight,
                                          const Scoring& scoring);

/// Rows whose target is one of this rank's classes, and the class's place here. Checks that ids are -1..num_classes-1.
struct LocalTargets {
  Tensor rows, classes;  // [n_local] int64
  int64_t counted = 0;   // rows with a target, over all ranks
};
LocalTargets find_targets(const Tensor& targets, int64_t first, int64_t local_classes);

}  // namespace tandem::classifier::detail
