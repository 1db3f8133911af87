#include "tandem/data/subset.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "tandem/base/error.h"

namespace tandem::data {
namespace {

constexpr uint64_t kCutEpoch = 0;  // of the permutation

}  // namespace

Subset::Subset(std::shared_ptr<const Dataset> all, Permutation order, int64_t first, int64_t count)
    : all_(std::move(all)), order_(order), first_(first), count_(count) {
  TORCH_CHECK_VALUE(first >= 0 && count >= 0 && first + count <= all_->size() && order_.size() == all_->size(),
                    "subset: ", count, " samples from position ", first, ", wanted some of ", all_->size());
}

int64_t Subset::read(int64_t index, std::span<uint8_t> pixels) const {
  check_read(index, pixels);
  const auto label = all_->read(place_of(index), pixels);
  note_odd(index);
  return label;
}

int64_t Subset::read_cropped(int64_t index, const RandomCrop& crop, std::span<uint8_t> pixels) const {
  check_read(index, pixels);
  const auto label = all_->read_cropped(place_of(index), crop, pixels);
  note_odd(index);
  return label;
}

/// The whole set has noted it by its own number.
void Subset::note_odd(int64_t index) const {
  const auto& odd = all_->odd_samples();
  if (odd.count() == 0) return;
  const auto places = odd.indices();
  if (std::ranges::find(places, place_of(index)) == places.end()) return;
  note_oddity(index, sample_name(index), odd.example());
}

std::pair<std::unique_ptr<Dataset>, std::unique_ptr<Dataset>> cut_in_two(std::unique_ptr<Dataset> all, double share,
                                                                         uint64_t seed) {
  const std::shared_ptr<const Dataset> whole = std::move(all);
  const int64_t size = whole->size(), first = static_cast<int64_t>(share * static_cast<double>(size));
  if (first < 1 || first >= size) {
    throw SettingsError("share is " + format_number("%g", share) + " of " + std::to_string(size) +
                        " images, wanted a part with at least one, and one left");
  }
  const Permutation order(size, seed, kCutEpoch);
  return {std::make_unique<Subset>(whole, order, 0, first),
          std::make_unique<Subset>(whole, order, first, size - first)};
}

}  // namespace tandem::data
