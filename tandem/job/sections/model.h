#pragma once
#include <cstdint>
#include <string>
#include <vector>

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
  int64_t ghost = 0;  // images that share statistics with norm ghost
  bool zero_gamma = false;
  std::vector<std::string> freeze;  // parameters whose names begin so are not trained
  std::string weights;              // where a new run's weights come from; "": drawn by the seed
  std::string weights_prefix;       // begins what stands before their names there; "": found by the names
};

}  // namespace tandem::job
