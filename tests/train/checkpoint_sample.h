#pragma once
#include <ATen/ATen.h>

#include <string>

#include "tandem/train/checkpoint_store.h"

namespace tandem::train {

inline const storage::Identity kSampleJob = {{"model", "tiny"}, {"data.classes", "11"}};

inline Tensor sample_weight(int64_t step, int rank) {
  return at::arange(40, at::kFloat).reshape({10, 4}) + static_cast<double>(step * 10 + rank);
}

inline void write_ranks(CheckpointStore& store, int64_t step, int world = 2) {
  store.begin(step);
  for (int rank = 0; rank < world; ++rank) {
    store.write_rank(step, rank, {{"head.weight.rank_" + std::to_string(rank), sample_weight(step, rank)}});
  }
}

inline storage::Manifest sample_manifest(int64_t step, int world = 2) {
  storage::Manifest manifest;
  manifest.step = step;
  manifest.world = world;
  manifest.identity = kSampleJob;
  manifest.trainer = {{"epoch", step / 100}, {"best", 0.5}};
  return manifest;
}

inline void save(CheckpointStore& store, int64_t step, int world = 2) {
  write_ranks(store, step, world);
  store.commit(sample_manifest(step, world));
}

inline bool holds_sample(const CheckpointStore& store, int64_t step) {
  const auto world = store.manifest(step).world;
  for (int rank = 0; rank < world; ++rank) {
    const auto weight = store.open_rank(step, rank).read("head.weight.rank_" + std::to_string(rank));
    if (!weight.equal(sample_weight(step, rank))) return false;
  }
  return true;
}

}  // namespace tandem::train
