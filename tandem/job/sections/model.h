#pragma once
#include <cstdint>
#include <string>

#include "tandem/models/model.h"

namespace tandem::job {

/// The backbone.
struct Model {
  std::string name;
  bool is_identity = false;  // no backbone: the head sees the raw pixels
  int64_t embedding = 0;
  models::Norm norm = models::Norm::batch;
  std::string activation;
  double dropout = 0;
};

}  // namespace tandem::job
