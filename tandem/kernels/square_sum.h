#pragma once
#include <array>
#include <cstdint>

namespace tandem::kernels {

/// A sum of squares without rounding: it depends neither on the order of the numbers nor on how they are cut into
/// parts. The sums of several parts are added digit by digit: at most 2^30 of them.
///
///   sum = digits[0] 2^-2150 + digits[1] 2^(-2150 + 32) + digits[2] 2^(-2150 + 64) + …
///
/// Every square of a float or a double fits, and so do sums of 2^60 squares. Memory: 1,096 bytes, and 32 KiB on the
/// stack of add(). Source: Kulisch 2013, Computer Arithmetic and Validity, chapter 8 (the long accumulator).
struct SquareSum {
  static constexpr int64_t kDigits = 137;  // the last counts parts with an infinity or a NaN

  std::array<int64_t, kDigits> digits{};

  void add(const float* x, int64_t count);
  void add(const double* x, int64_t count);

  /// Rounded to the nearest; infinite above the largest double; NaN after an infinity or a NaN.
  double value() const;
};

}  // namespace tandem::kernels
