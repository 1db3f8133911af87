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
  int64_t embedding = 0;     // 0: the head sees the backbone's features
  int64_t features = 0;      // that the head sees of an image
  models::Norm norm = models::Norm::batch;
  std::string activation;
  double dropout = 0;
  int64_t ghost = 0;  // images that share statistics with norm ghost
  bool zero_gamma = false;
  int64_t cells = 0, channels = 0;  // of a network of cells
  models::Stem stem = models::Stem::cifar;
  double auxiliary = 0;  // what a second classifier's loss counts while a network of cells is trained; 0: there is none
  double drop_path = 0;
  int64_t patch = 0, heads = 0;  // of a vision transformer; 0 heads: as published
  bool divides_tokens = false;   // of a vision transformer, along tensor
  std::string search_method;     // of the model of a search: one of models::search_methods()
  int64_t search_partial = 0;
  std::vector<std::string> freeze;  // parameters whose names begin so are not trained
  std::string weights;              // where a new run's weights come from; "": drawn by the seed
  std::string weights_prefix;       // begins what stands before their names there; "": found by the names
};

}  // namespace tandem::job
