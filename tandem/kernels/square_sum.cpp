#include "tandem/kernels/square_sum.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace tandem::kernels {
namespace {

__extension__ typedef unsigned __int128 Wide;

constexpr int kLowest = -2150;  // exponent of the first digit
constexpr int64_t kNotFinite = SquareSum::kDigits - 1;
constexpr uint64_t kMask = 0xffffffff;

using Digits = std::array<int64_t, SquareSum::kDigits>;

/// How a type's numbers are made: fraction * 2^(exponent + kFirst), and in a normal number one more bit.
template <class T>
struct Format;

template <>
struct Format<float> {
  using Bits = uint32_t;
  using Sum = uint64_t;  // of up to kAtOnce squares
  static constexpr int kFractionBits = 23, kExponents = 256, kFirst = -150;
  static constexpr int64_t kAtOnce = int64_t{1} << 16;
};

template <>
struct Format<double> {
  using Bits = uint64_t;
  using Sum = Wide;
  static constexpr int kFractionBits = 52, kExponents = 2048, kFirst = -1075;
  static constexpr int64_t kAtOnce = int64_t{1} << 22;
};

/// Adds value * 2^(place + kLowest).
void add_at(Digits& digits, uint64_t value, int place) {
  auto shifted = static_cast<Wide>(value) << (place % 32);
  for (size_t digit = static_cast<size_t>(place / 32); shifted != 0; ++digit, shifted >>= 32) {
    digits[digit] += static_cast<int64_t>(static_cast<uint64_t>(shifted) & kMask);
  }
}

void add_at(Digits& digits, Wide value, int place) {
  add_at(digits, static_cast<uint64_t>(value), place);
  add_at(digits, static_cast<uint64_t>(value >> 64), place + 64);
}

void carry(Digits& digits) {
  for (size_t i = 0; i + 1 < kNotFinite; ++i) {
    digits[i + 1] += digits[i] >> 32;
    digits[i] &= static_cast<int64_t>(kMask);
  }
}

/// The squares of numbers with the same exponent are added as integers.
template <class T>
void add_some(Digits& digits, const T* x, int64_t count) {
  using Of = Format<T>;
  using Bits = typename Of::Bits;
  using Sum = typename Of::Sum;
  constexpr Bits kImplied = Bits{1} << Of::kFractionBits;
  std::array<Sum, Of::kExponents> sums{};
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, x + i, sizeof(bits));
    const auto exponent = static_cast<size_t>(bits >> Of::kFractionBits) % Of::kExponents;
    const Sum fraction = (bits & (kImplied - 1)) | (exponent == 0 ? 0 : kImplied);
    sums[exponent] += fraction * fraction;
  }
  if (sums.back() != 0) ++digits[kNotFinite];
  for (int exponent = 0; exponent + 1 < Of::kExponents; ++exponent) {
    const auto sum = sums[static_cast<size_t>(exponent)];
    if (sum != 0) add_at(digits, sum, 2 * (std::max(exponent, 1) + Of::kFirst) - kLowest);
  }
  carry(digits);
}

template <class T>
void add_all(Digits& digits, const T* x, int64_t count) {
  for (int64_t begin = 0; begin < count; begin += Format<T>::kAtOnce) {
    add_some(digits, x + begin, std::min(Format<T>::kAtOnce, count - begin));
  }
}

}  // namespace

void SquareSum::add(const float* x, int64_t count) { add_all(digits, x, count); }
void SquareSum::add(const double* x, int64_t count) { add_all(digits, x, count); }

double SquareSum::value() const {
  if (digits[kNotFinite] != 0) return std::numeric_limits<double>::quiet_NaN();
  auto own = digits;
  carry(own);
  int64_t top = kNotFinite - 1;
  while (top > 2 && own[static_cast<size_t>(top)] == 0) --top;
  // 65 bits or more, and one that tells whether there are more: enough to round as the whole sum does.
  Wide leading = 0;
  for (int64_t i = top; i > top - 3; --i) leading = leading << 32 | static_cast<uint64_t>(own[static_cast<size_t>(i)]);
  const auto has_more = std::any_of(own.begin(), own.begin() + (top - 2), [](int64_t digit) { return digit != 0; });
  return std::ldexp(static_cast<double>(leading | Wide{has_more}), static_cast<int>(32 * (top - 2)) + kLowest);
}

}  // namespace tandem::kernels
