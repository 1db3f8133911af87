#pragma once
#include <memory>
#include <utility>

#include "tandem/base/rng.h"
#include "tandem/data/dataset.h"

namespace tandem::data {

/// Some samples of a data set, which keep their labels: those at the positions first .. first + count - 1 of a
/// permutation, which is computed, not stored.
class Subset : public Dataset {
 public:
  /// Throws c10::ValueError if there are no such positions.
  Subset(std::shared_ptr<const Dataset> all, Permutation order, int64_t first, int64_t count);

  int64_t size() const override { return count_; }
  int64_t num_classes() const override { return all_->num_classes(); }
  std::array<int64_t, 3> image_shape() const override { return all_->image_shape(); }
  int64_t read(int64_t index, std::span<uint8_t> pixels) const override;
  int64_t read_cropped(int64_t index, const RandomCrop& crop, std::span<uint8_t> pixels) const override;
  std::string class_name(int64_t label) const override { return all_->class_name(label); }
  std::string sample_name(int64_t index) const override { return all_->sample_name(place_of(index)); }
  std::string describe() const override { return all_->describe(); }

 private:
  int64_t place_of(int64_t index) const { return order_(first_ + index); }
  void note_odd(int64_t index) const;

  std::shared_ptr<const Dataset> all_;
  Permutation order_;
  int64_t first_, count_;
};

/// Cuts a data set in two at random, by `seed`: `share` of the samples, rounded down, and the others. Throws
/// SettingsError, naming `share`, unless each part gets a sample.
std::pair<std::unique_ptr<Dataset>, std::unique_ptr<Dataset>> cut_in_two(std::unique_ptr<Dataset> all, double share,
                                                                         uint64_t seed);

}  // namespace tandem::data
