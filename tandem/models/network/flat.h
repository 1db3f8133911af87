#pragma once
#include "tandem/models/backbone.h"

namespace tandem::models {

/// No network: the pixels of an image are its embedding, so options.embedding must be channels * height * width. Only
/// the classifier is trained.
class Flat : public Backbone {
 public:
  explicit Flat(const ModelOptions& options);
};

}  // namespace tandem::models
