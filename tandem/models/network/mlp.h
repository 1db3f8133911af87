#pragma once
#include <memory>

#include "tandem/models/backbone.h"
#include "tandem/models/network/layers.h"

namespace tandem::models {

/// images -> flat -> fc1 activation -> fc2 activation -> embedding. Uses no batch statistics, so that the loss of a
/// batch does not depend on how it is split over ranks. Over the ranks of ModelOptions::tensor fc1 is divided by
/// outputs and fc2 by inputs. Images must be [N, channels, size, width].
class Mlp : public Backbone {
 public:
  static constexpr int64_t kHidden = 256;  // features before the embedding

  explicit Mlp(const ModelOptions& options);
};

}  // namespace tandem::models
