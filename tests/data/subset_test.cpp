#include "tandem/data/subset.h"

#include <gtest/gtest.h>

#include <set>

#include "tandem/base/error.h"
#include "tests/support/text_of.h"

namespace tandem::data {
namespace {

/// Its pixels and labels are those of its number.
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t size) : size_(size) {}

  int64_t size() const override { return size_; }
  int64_t num_classes() const override { return 7; }
  std::array<int64_t, 3> image_shape() const override { return {1, 2, 2}; }
  int64_t read(int64_t index, std::span<uint8_t> pixels) const override {
    check_read(index, pixels);
    std::ranges::fill(pixels, static_cast<uint8_t>(index));
    if (index == 3) note_oddity(index, sample_name(index), "odd");
    return index % 7;
  }
  std::string class_name(int64_t label) const override { return "class " + std::to_string(label); }
  std::string describe() const override { return "numbers"; }

 private:
  int64_t size_;
};

std::set<int64_t> numbers_of(const Dataset& set) {
  std::set<int64_t> numbers;
  for (int64_t i = 0; i < set.size(); ++i) {
    std::vector<uint8_t> pixels(4);
    const auto label = set.read(i, pixels);
    EXPECT_EQ(label, pixels[0] % 7);
    EXPECT_EQ(set.sample_name(i), std::to_string(pixels[0]));
    numbers.insert(pixels[0]);
  }
  return numbers;
}

TEST(Subset, TwoPartsHaveEachSampleOnce) {
  for (const double share : {0.5, 0.1, 0.77}) {
    const auto [one, other] = cut_in_two(std::make_unique<Numbers>(41), share, 5);
    EXPECT_EQ(one->size(), static_cast<int64_t>(41 * share));
    auto all = numbers_of(*one);
    all.merge(numbers_of(*other));
    EXPECT_EQ(std::ssize(all), 41);
    EXPECT_EQ(one->num_classes(), 7);
    EXPECT_EQ(other->class_name(2), "class 2");
  }
}

TEST(Subset, TheSeedDecidesTheParts) {
  const auto part = [](uint64_t seed) {
    return numbers_of(*cut_in_two(std::make_unique<Numbers>(40), 0.5, seed).first);
  };
  EXPECT_EQ(part(1), part(1));
  EXPECT_NE(part(1), part(2));
  std::set<int64_t> first_half;
  for (int64_t i = 0; i < 20; ++i) first_half.insert(i);
  EXPECT_NE(part(1), first_half) << "a set that is sorted by class must not be cut between classes";
}

TEST(Subset, OddSamplesKeepTheirPlace) {
  const auto [one, other] = cut_in_two(std::make_unique<Numbers>(10), 0.5, 1);
  numbers_of(*one), numbers_of(*other);
  EXPECT_EQ(one->odd_samples().count() + other->odd_samples().count(), 1);
  const auto& odd = one->odd_samples().count() > 0 ? *one : *other;
  EXPECT_EQ(odd.sample_name(odd.odd_samples().indices()[0]), "3");
}

TEST(Subset, APartWithoutSamplesIsRefused) {
  EXPECT_EQ(test::text_of<SettingsError>([] { cut_in_two(std::make_unique<Numbers>(3), 0.3, 1); }),
            "share is 0.3 of 3 images, wanted a part with at least one, and one left");
}

}  // namespace
}  // namespace tandem::data
