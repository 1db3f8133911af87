#include "tandem/base/rng.h"

#include <cmath>
#include <numbers>

namespace tandem {
namespace {

constexpr int kFeistelRounds = 6;

uint64_t combine(uint32_t high, uint32_t low) { return (static_cast<uint64_t>(high) << 32) | low; }

double to_unit(uint32_t high, uint32_t low) { return static_cast<double>(combine(high, low) >> 11) * 0x1.0p-53; }

/// Box-Muller on four words: one normal number, so that each element owns a whole Philox block.
double to_normal(const std::array<uint32_t, 4>& words) {
  const double radius = std::sqrt(-2.0 * std::log1p(-to_unit(words[0], words[1])));
  return radius * std::cos(2.0 * std::numbers::pi * to_unit(words[2], words[3]));
}

template <class Draw>
void fill_each(const Tensor& tensor, int64_t first, uint64_t seed, uint64_t stream, Draw draw) {
  TORCH_CHECK_VALUE(tensor.device().is_cpu() && tensor.is_contiguous(), "random fill: wanted a contiguous CPU tensor");
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  AT_DISPATCH_FLOATING_TYPES(tensor.scalar_type(), "random fill", [&] {
    auto* values = tensor.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      const auto index = static_cast<uint64_t>(first + i);
      const auto words = philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                                 static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                                key);
      values[i] = static_cast<scalar_t>(draw(words));
    }
  });
}

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiply0 * counter[0], product1 = kMultiply1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

CounterRng::CounterRng(uint64_t seed, uint64_t stream, uint64_t index)
    : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
      counter_{0, static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(stream)},
      stream_(stream) {
  key_[1] ^= static_cast<uint32_t>(stream_ >> 32);
}

uint32_t CounterRng::next() {
  if (used_ == 4) {
    words_ = philox(counter_, key_);
    ++counter_[0];
    used_ = 0;
  }
  return words_[used_++];
}

double CounterRng::uniform() {
  const uint32_t high = next();
  return to_unit(high, next());
}

double CounterRng::uniform(double low, double high) { return low + (high - low) * uniform(); }

double CounterRng::normal() {
  std::array<uint32_t, 4> words{};
  for (auto& word : words) word = next();
  return to_normal(words);
}

Permutation::Permutation(int64_t n, uint64_t seed, uint64_t epoch) : n_(n), half_bits_(1), seed_(seed), epoch_(epoch) {
  TORCH_CHECK_VALUE(n >= 0, "permutation: size is ", n, ", wanted 0 or more");
  while ((int64_t{1} << (2 * half_bits_)) < n) ++half_bits_;
}

uint64_t Permutation::mix(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (uint32_t round = 0; round < kFeistelRounds; ++round) {
    const auto words = philox(
        {static_cast<uint32_t>(right), round, static_cast<uint32_t>(epoch_), static_cast<uint32_t>(epoch_ >> 32)},
        {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
    const uint64_t next = (left ^ words[0]) & mask;
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

int64_t Permutation::operator()(int64_t position) const {
  TORCH_CHECK_INDEX(position >= 0 && position < n_, "permutation: position is ", position, ", wanted 0..", n_ - 1);
  auto value = static_cast<uint64_t>(position);
  do {
    value = mix(value);
  } while (value >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(value);
}

void fill_normal_(const Tensor& tensor, double deviation, uint64_t seed, uint64_t stream, int64_t first) {
  fill_each(tensor, first, seed, stream, [=](const auto& words) { return deviation * to_normal(words); });
}

void fill_uniform_(const Tensor& tensor, double bound, uint64_t seed, uint64_t stream, int64_t first) {
  fill_each(tensor, first, seed, stream,
            [=](const auto& words) { return bound * (2.0 * to_unit(words[0], words[1]) - 1.0); });
}

uint64_t stream_of(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3;
  return hash;
}

}  // namespace tandem
