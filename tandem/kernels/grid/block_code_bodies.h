#pragma once
#include <limits>

#include "tandem/kernels/block_codes.h"
#include "tandem/kernels/grid/body.h"

/// Bodies of block_codes.h, with the same bits as on the CPU.
namespace tandem::kernels {

inline constexpr int kCodeNumbers = 4;

/// The bits of the largest magnitude of a pack: their order is that of magnitudes, and what is not finite is above all
/// others. A row is a block, a column a pack of it.
struct MagnitudeValue {
  const float* x;
  int64_t count;

  TANDEM_BODY int32_t operator()(int64_t block, int64_t pack) const {
    const int64_t at = block * kCodeBlock + pack * kCodeNumbers;
    const auto values = load_pack<kCodeNumbers>(x + at, count - at);
    int32_t most = 0;
    TANDEM_UNROLL
    for (int k = 0; k < kCodeNumbers; ++k) {
      int32_t bits;
      memcpy(&bits, &values.at[k], sizeof(bits));
      most = larger(most, bits & 0x7FFFFFFF);
    }
    return most;
  }
};

struct ScaleOut {
  static constexpr int32_t kInfinity = 0x7F800000;
  static constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kLeast = std::numeric_limits<float>::min();

  float* scales;

  TANDEM_BODY void operator()(int64_t block, int32_t magnitude) const {
    float most;
    memcpy(&most, &magnitude, sizeof(most));
    scales[block] = magnitude >= kInfinity ? kNaN : most / 126 > kLeast ? most / 126 : kLeast;
  }
};

TANDEM_BODY inline int8_t code_of(float x, float scale) {
  const float steps = scale == scale ? std::fabs(x) * (1 / scale) : 0;
  int level = static_cast<int>(steps);
  level += steps >= static_cast<float>(level) + 0.5F ? 1 : 0;  // without a sum that could become an FMA
  level += x < 0 || x > 0 ? 1 : 0;
  return static_cast<int8_t>(x < 0 ? -level : level);
}

TANDEM_BODY inline float decoded(int8_t code, float scale) {
  const int level = code < 0 ? -code : code;
  const float size = scale * (level > 1 ? static_cast<float>(level - 1) : level == 1 ? 0x1p-20F : 0.0F);
  return code < 0 ? -size : size;
}

/// Index i: pack i of the numbers.
struct EncodeBody {
  const float* x;
  int64_t count;
  const float* scales;
  int8_t* codes;

  TANDEM_BODY void operator()(int64_t i) const {
    const int64_t at = i * kCodeNumbers, left = count - at;
    const auto values = load_pack<kCodeNumbers>(x + at, left);
    const float scale = scales[at / kCodeBlock];
    TANDEM_UNROLL
    for (int k = 0; k < kCodeNumbers; ++k) {
      if (k < left) codes[at + k] = code_of(values.at[k], scale);
    }
  }
};

struct DecodeBody {
  const int8_t* codes;
  int64_t count;
  const float* scales;
  float* x;

  TANDEM_BODY void operator()(int64_t i) const {
    const int64_t at = i * kCodeNumbers, left = count - at;
    const float scale = scales[at / kCodeBlock];
    Pack<float, kCodeNumbers> values;
    TANDEM_UNROLL
    for (int k = 0; k < kCodeNumbers; ++k) values.at[k] = decoded(k < left ? codes[at + k] : int8_t{0}, scale);
    store_pack(values, x + at, left);
  }
};

}  // namespace tandem::kernels
