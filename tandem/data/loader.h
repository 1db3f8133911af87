#pragma once
#include <cstdint>
#include <memory>

#include "tandem/data/dataset.h"
#include "tandem/data/image/augment.h"

namespace tandem::data {

struct LoaderOptions {
  int64_t batch = 128;  // samples of one global batch, over all ranks
  int rank = 0, size = 1;
  uint64_t seed = 0;
  bool shuffle = true;    // a new order each epoch; false: the data set's order
  bool drop_last = true;  // leave out a last batch that is not full
  AugmentOptions augment = {};
  int prefetch = 2;  // batches made ahead of the caller; 0: made in next(), on the caller's thread
  int threads = 1;   // that make them
};

/// Batches of a data set, this rank's part of each, made ahead on threads of its own.
///
///   position   0 . . . . . B . . . . . 2B . . .        sample = Permutation(n, seed, epoch)(position)
///   batch      |---- 0 ----|---- 1 ----|
///   rank of 3  |0 0|1 1|2 2|0 0|1 1|2 2|               n / ranks each, the first n % ranks one more
///
/// The samples of global batch b, and what augmentation does to each, depend on (seed, epoch, b) alone, never on how
/// many ranks share it. Tensors are allocated and freed on the caller's thread, so a memory meter books them there.
/// One thread uses a loader at a time. Keeps prefetch + 1 batches of memory. Not collective.
class Loader {
 public:
  /// `dataset` must outlive the loader. Throws SettingsError: a batch smaller than the ranks, or larger than the data
  /// set while drop_last, or augment.
  Loader(const Dataset& dataset, LoaderOptions options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  int64_t batches_per_epoch() const;

  /// Begins an epoch at a batch; what was prepared of another is dropped. Epochs may come in any order.
  void start(int64_t epoch, int64_t first_batch = 0);

  /// The next batch, or false at the epoch's end. What went wrong while it was made is thrown here (the first sample's
  /// fault, when several have one); the call after goes on with the batch that follows.
  bool next(Batch& batch);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::data
