#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "tandem/kernels/grid/host_grid.h"

namespace tandem::kernels {

/// Threads of the grids that tests of bodies run on: with several, ThreadSanitizer sees two indices that write one
/// byte.
inline constexpr std::array kGridThreads = {1, 3};

/// Sizes that do not divide.
inline constexpr std::array<int64_t, 6> kOddSizes = {0, 1, 3, 17, 255, 257};

template <class S>
S stored_as(double value) {
  S result;
  round_to(static_cast<AbnNumber<S>>(value), result);
  return result;
}

/// Uniform in -width .. width, as S holds them.
template <class S>
std::vector<S> drawn_as(uint64_t seed, int64_t count, double width) {
  std::mt19937_64 bits(seed);
  std::vector<S> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(stored_as<S>(width * (static_cast<double>(bits() >> 11) * 0x1p-52 - 1)));
  }
  return values;
}

/// One unit in the last place of S, of a number near 1.
template <class S>
inline constexpr double kUnit = sizeof(S) == 2   ? 0x1p-7
                                : sizeof(S) == 4 ? 0x1p-23
                                                 : 0x1p-52;

class Scratch {
 public:
  explicit Scratch(int64_t bytes) : memory_(static_cast<size_t>(bytes) / sizeof(std::max_align_t) + 1) {}
  void* get() { return memory_.data(); }

 private:
  std::vector<std::max_align_t> memory_;
};

}  // namespace tandem::kernels
