#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/data/image/augment.h"

namespace tandem::data {

struct LoaderOptions {
  int64_t batch = 128;  // samples of one global batch, over all ranks
  int rank = 0, size = 1;
  int idle = 0;        // ranks size .. size + idle - 1 go through the same batches, without samples of their own
  int64_t shards = 0;  // 0: one part a rank; else a multiple of size: a batch has so many parts, dealt out in turn
  uint64_t seed = 0;
  bool shuffle = true;    // a new order each epoch; false: the data set's order
  bool drop_last = true;  // leave out a last batch that is not full
  AugmentOptions augment = {};
  int prefetch = 2;  // batches made ahead of the caller; 0: made in next(), on the caller's thread
  int threads = 1;   // threads that make batches
  c10::Device device = c10::DeviceType::CPU;  // where the images are wanted, for the caller's current stream
};

/// The same options, as a test wants them: all samples, in the data set's order, normalised but not augmented.
LoaderOptions test_options(LoaderOptions options);

/// Loads this rank's part of each batch of a data set, ahead of the caller, on threads of its own.
///
///   position   0 . . . . . B . . . . . 2B . . .        sample = Permutation(n, seed, epoch)(position)
///   batch      |---- 0 ----|---- 1 ----|
///   rank of 3  |0 0|1 1|2 2|0 0|1 1|2 2|               n / ranks each, the first n % ranks one more
///
/// With 6 shards, the ranks get  |0|1|2|0|1|2|  each its parts one after the other.
///
/// The samples of global batch b and their augmentation depend on (seed, epoch, b) alone, not on the number of ranks.
/// For a device, batches are made in memory from which it copies by itself, and a stream of its own copies the images
/// of the next batch, if it is made by then, while the caller computes:
///
///   copies    batch 1 │ 2     │ 3
///   caller            │ step 1│ step 2 ...
///
/// Tensors are allocated and freed on the caller's thread, so that a memory meter counts them there. Must be used by
/// one thread at a time. Memory: prefetch + 1 batches; of a device the images of 2. Not collective.
class Loader {
 public:
  /// `dataset` must outlive the loader. Throws SettingsError (batch smaller than the number of ranks or shards, or with
  /// drop_last larger than the data set; augment), c10::ValueError (rank, shards, prefetch, threads).
  Loader(const Dataset& dataset, LoaderOptions options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  int64_t batches_per_epoch() const;
  const LoaderOptions& options() const;

  /// Starts `epoch` at batch `first_batch` and drops the batches prepared so far. Epochs may come in any order. Throws
  /// c10::ValueError (epoch or batch out of range).
  void start(int64_t epoch, int64_t first_batch = 0);

  /// Gets the next batch, or returns false at the end of the epoch. The former content of `batch` is freed. Throws the
  /// error that occurred while the batch was made (if several samples failed, the error of the first); the next call
  /// then continues with the following batch.
  bool next(Batch& batch);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Samples that the rank, or each of the ranks, gets of a batch of so many.
int64_t samples_of(const LoaderOptions& options, int64_t batch);
std::vector<int64_t> samples_of_ranks(LoaderOptions options, int64_t batch);

/// Bytes that the meter counts of the batches that a loader and its caller have while the caller works on one; where
/// they are wanted on a device, of the device.
/// `batches`: of an epoch.
int64_t loader_memory(const LoaderOptions& options, const std::array<int64_t, 3>& image_shape, int64_t batches);

}  // namespace tandem::data
