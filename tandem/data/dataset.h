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
#include "tandem/data/image/random_crop.h"

namespace tandem::data {

/// Labelled images of one shape, by index. Knows nothing of ranks, order or augmentation: the loader handles these.
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

  /// As read(), of the part of the picture that `crop` draws, which is stretched to image_shape(). By default it is cut
  /// out of what read() writes: a data set whose pictures are stored larger should cut it out of these.
  virtual int64_t read_cropped(int64_t index, const RandomCrop& crop, std::span<uint8_t> pixels) const;

  /// The name of a class: a folder's name, a character with its code point.
  virtual std::string class_name(int64_t label) const = 0;

  /// What people call a sample: the path of its file, else its number.
  virtual std::string sample_name(int64_t index) const { return std::to_string(index); }

  /// One line, shown at the start of a run.
  virtual std::string describe() const = 0;

  /// The odd samples among those that any thread of this process has read so far.
  const OddSamples& odd_samples() const { return odd_samples_; }

 protected:
  /// Every read() must call this first. Throws c10::IndexError (index), c10::ValueError (size of `pixels`).
  void check_read(int64_t index, std::span<uint8_t> pixels) const;

  /// For a read() that decodes files: notes the sample as odd unless `oddity`, the Image::oddity, is empty. `name` is
  /// the sample's name.
  void note_oddity(int64_t index, const std::string& name, const std::string& oddity) const;

 private:
  mutable OddSamples odd_samples_;
};

/// This rank's part of one global batch.
struct Batch {
  Tensor images;            // [n, C, H, W] float32; n may be 0 when the global batch is smaller than the ranks
  Tensor labels;            // [n] int64
  int64_t global_size = 0;  // samples in the whole global batch, over all ranks
  // The number of samples before the first of this rank, in all epochs and of all ranks: the same sample has the same
  // number whatever the number of ranks.
  int64_t first_sample = 0;
};

/// The queries of a retrieval task, or its gallery.
struct RetrievalSet {
  std::unique_ptr<Dataset> images;  // the labels are the identities
  std::vector<int64_t> identity,
      camera;  // one per image; images of one identity by one camera do not count as matches
};

/// A retrieval task: find the identity of each query in a gallery.
struct Retrieval {
  RetrievalSet query, gallery;
  std::string what;  // one line, shown at the start of a run
};

/// A task: training data and test data.
struct Split {
  std::unique_ptr<Dataset> train, test;          // both have the same classes; test is null if nothing is held out
  std::string summary;                           // one line, shown at the start of a run
  std::string_view tests = "held-out test set";  // what `test` is
  std::optional<Retrieval> retrieval = {};       // a retrieval task on identities that are not trained on
  int64_t stored_side = 0;                       // median of the shorter sides of the stored images; 0: not known
  bool has_other_classes = false;                // of test: not those of the model, which can only compare the images
};

}  // namespace tandem::data
