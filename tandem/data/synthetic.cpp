#include "tandem/data/synthetic.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/rng.h"

namespace tandem::data {
namespace {

constexpr int64_t kStride = 7919;  // a prime

class Synthetic final : public Dataset {
 public:
  Synthetic(const SyntheticOptions& options, int64_t images) : options_(options), images_(images) {}

  int64_t size() const override { return images_; }
  int64_t num_classes() const override { return options_.classes; }
  std::array<int64_t, 3> image_shape() const override { return options_.shape; }
  std::string class_name(int64_t label) const override { return std::to_string(label); }

  int64_t read(int64_t index, std::span<uint8_t> pixels) const override {
    check_read(index, pixels);
    CounterRng rng(0, stream_of("synthetic"), static_cast<uint64_t>(index));
    for (size_t at = 0; at < pixels.size(); at += sizeof(uint32_t)) {
      const uint32_t word = rng.next();
      std::memcpy(&pixels[at], &word, std::min(sizeof word, pixels.size() - at));
    }
    return index % options_.classes * kStride % options_.classes;
  }

  std::string describe() const override {
    return "synthetic  " + format_count(options_.classes) + " classes · " + format_count(images_) + " images of noise";
  }

 private:
  SyntheticOptions options_;
  int64_t images_;
};

}  // namespace

Split synthetic(const SyntheticOptions& options) {
  const auto& shape = options.shape;
  if (options.classes < 1 || options.images < 1 || std::ranges::any_of(shape, [](int64_t n) { return n < 1; })) {
    throw SettingsError("synthetic data has " + std::to_string(options.classes) + " classes and " +
                        std::to_string(options.images) + " images of " + std::to_string(shape[0]) + " x " +
                        std::to_string(shape[1]) + " x " + std::to_string(shape[2]) + ", wanted 1 or more of each");
  }
  Split split;
  split.train = std::make_unique<Synthetic>(options, options.images);
  split.test = std::make_unique<Synthetic>(options, 0);
  split.summary = split.train->describe();
  return split;
}

}  // namespace tandem::data
