#include "tandem/kernels/block_codes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "tandem/kernels/detail/vector_math.h"

namespace tandem::kernels {
namespace {

using detail::all;
using detail::kWidth;
using detail::magnitude;

using Floats = Vector<float>;
using Integers = Vectors<float>::Bits;
using Codes = int8_t __attribute__((vector_size(16)));
using Block = std::array<float, kCodeBlock>;
using BlockCodes = std::array<int8_t, kCodeBlock>;

constexpr int32_t kLevels = 126;
constexpr int32_t kInfinity = 0x7F800000;                         // bits
constexpr float kLeastScale = std::numeric_limits<float>::min();  // whose inverse is finite
constexpr float kTiny = 0x1p-20F;

/// The order of magnitudes is that of their bits, and what is not finite is above all others.
TANDEM_INLINE int32_t largest_magnitude(const float* x) {
  Integers most = {};
  for (int64_t i = 0; i < kCodeBlock; i += kWidth<float>) {
    Integers bits;
    std::memcpy(&bits, x + i, sizeof(bits));
    bits &= 0x7FFFFFFF;
    most = bits > most ? bits : most;
  }
  int32_t result = 0;
  for (int64_t i = 0; i < kWidth<float>; ++i) result = std::max(result, most[i]);
  return result;
}

TANDEM_INLINE float scale_of(int32_t magnitude) {
  if (magnitude >= kInfinity) return std::numeric_limits<float>::quiet_NaN();
  float most;
  std::memcpy(&most, &magnitude, sizeof(most));
  return std::max(most / kLevels, kLeastScale);
}

TANDEM_INLINE float encode_block(const float* x, int8_t* codes) {
  const float scale = scale_of(largest_magnitude(x));
  const float inverse = scale == scale ? 1 / scale : 0;
  for (int64_t i = 0; i < kCodeBlock; i += kWidth<float>) {
    const Floats values = load(x + i), size = magnitude(values);
    Integers level = __builtin_convertvector(scale == scale ? size * inverse + 0.5F : Floats{}, Integers);
    level = level > kLevels ? Integers{} + kLevels : level;
    level -= size > 0.0F;  // true is -1
    const auto own = __builtin_convertvector(values < 0.0F ? -level : level, Codes);
    std::memcpy(codes + i, &own, sizeof(own));
  }
  return scale;
}

TANDEM_INLINE void decode_block(const int8_t* codes, float scale, float* x) {
  for (int64_t i = 0; i < kCodeBlock; i += kWidth<float>) {
    Codes own;
    std::memcpy(&own, codes + i, sizeof(own));
    const auto code = __builtin_convertvector(own, Integers);
    const Integers level = code < 0 ? -code : code;
    const Floats steps = __builtin_convertvector(level, Floats) - 1.0F;
    const Floats size = scale * (level > 1 ? steps : level == 1 ? all(kTiny) : Floats{});
    store(code < 0 ? -size : size, x + i);
  }
}

}  // namespace

TANDEM_FOR_EACH_CPU void encode(const float* x, int64_t count, int8_t* codes, float* scales) {
  const int64_t whole = count / kCodeBlock;
  for (int64_t i = 0; i < whole; ++i) scales[i] = encode_block(x + i * kCodeBlock, codes + i * kCodeBlock);
  const int64_t done = whole * kCodeBlock, rest = count - done;
  if (rest == 0) return;
  Block last = {};
  BlockCodes own;
  std::copy_n(x + done, rest, last.begin());
  scales[whole] = encode_block(last.data(), own.data());
  std::copy_n(own.begin(), rest, codes + done);
}

TANDEM_FOR_EACH_CPU void decode(const int8_t* codes, const float* scales, int64_t count, float* x) {
  const int64_t whole = count / kCodeBlock;
  for (int64_t i = 0; i < whole; ++i) decode_block(codes + i * kCodeBlock, scales[i], x + i * kCodeBlock);
  const int64_t done = whole * kCodeBlock, rest = count - done;
  if (rest == 0) return;
  BlockCodes last = {};
  Block own;
  std::copy_n(codes + done, rest, last.begin());
  decode_block(last.data(), scales[whole], own.data());
  std::copy_n(own.begin(), rest, x + done);
}

}  // namespace tandem::kernels
