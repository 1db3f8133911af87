#pragma once
#include "tandem/models/backbone.h"

namespace tandem::models {

/// No network: the numbers of an image are its embedding, which must be as many. What is left is the classifier alone.
class Flat : public Backbone {
 public:
  explicit Flat(const ModelOptions& options);

  Tensor forward(const Tensor& images) override;
};

}  // namespace tandem::models
