#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/data/image/odd_samples.h"

namespace tandem::data {

/// Labelled images of one shape, by index. Knows nothing of ranks, order or augmentation: that is the loader's part.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;                        // samples
  virtual int64_t num_classes() const = 0;                 // labels are 0..num_classes-1
  virtual std::array<int64_t, 3> image_shape() const = 0;  // channels, height, width

  /// Writes sample `index` into `pixels` (channels * height * width bytes, one plane a channel, rows from the top)
  /// and returns its label. Several threads may read at once.
  /// Throws c10::IndexError (index), c10::ValueError (size of `pixels`), DataError (a file that cannot be decoded).
  virtual int64_t read(int64_t index, std::span<uint8_t> pixels) const = 0;

  /// What a class is called: a folder's name, a character with its code point.
  virtual std::string class_name(int64_t label) const = 0;

  /// One line for the top of a run.
  virtual std::string describe() const = 0;

  /// Of the samples read so far, on any thread of this process.
  const OddSamples& odd_samples() const { return odd_samples_; }

 protected:
  /// What every read() checks first.
  void check_read(int64_t index, std::span<uint8_t> pixels) const;

  /// For read(): `oddity` as Image has it, empty for none; `name` is the sample's.
  void note_oddity(int64_t index, const std::string& name, const std::string& oddity) const;

 private:
  mutable OddSamples odd_samples_;
};

/// This rank's part of one global batch.
struct Batch {
  Tensor images;            // [n, C, H, W] float32; n may be 0 when the global batch is smaller than the ranks
  Tensor labels;            // [n] int64
  int64_t global_size = 0;  // samples in the whole global batch, over all ranks
};

/// Images that are queries, or a gallery.
struct RetrievalSet {
  std::unique_ptr<Dataset> images;  // the labels are the identities
  std::vector<int64_t> identity,
      camera;  // of each image; camera: what took it, whose other images of it count for nothing
};

/// A task of finding each query's identity in a gallery.
struct Retrieval {
  RetrievalSet query, gallery;
  std::string what;  // one line for the top of a run
};

/// A task: what to learn from and what to be judged by.
struct Split {
  std::unique_ptr<Dataset> train, test;     // of the same classes; test: null when nothing is held out
  std::string summary;                      // one line for the top of a run
  std::optional<Retrieval> retrieval = {};  // identities that are not learned
};

}  // namespace tandem::data
