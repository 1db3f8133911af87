#pragma once
#include <cmath>
#include <cstdint>

#include "tandem/models/space.h"
#include "tandem/search/search_step.h"

namespace tandem::job {

/// What a search does besides training.
struct Search {
  models::Space space;
  search::ArchitectOptions architect;
  train::OptimizerOptions alphas;
  double rate = 0;          // learning rate of the alphas
  double warmup = 0;        // epochs before they move
  double share = 0;         // of the training images: those that weights are trained on; 1: all
  bool is_guarded = false;  // against collapse
  bool takes_best = false;  // the genotype of the test with the best accuracy, not the last one

  /// The step, from 0, that first moves the alphas.
  int64_t first_step(int64_t steps_per_epoch) const {
    return std::llround(warmup * static_cast<double>(steps_per_epoch));
  }
};

/// Whether losses are differentiated twice.
bool needs_second_derivatives(const Search& search);

}  // namespace tandem::job
