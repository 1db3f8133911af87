#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tandem/kernels/abn_kernels.h"

#ifdef __CUDACC__
#define TANDEM_BODY __host__ __device__
#define TANDEM_UNROLL _Pragma("unroll")
#else
#define TANDEM_BODY
#define TANDEM_UNROLL
#endif

/// What bodies share. A body is a function of an index that runs on the host and on a device (grid.h); it calls nothing
/// but other bodies and <cmath>. S, the type in memory, is float, double, or uint16_t holding bfloat16, for which the
/// arithmetic is in float.
namespace tandem::kernels {

TANDEM_BODY inline float widened(float value) { return value; }
TANDEM_BODY inline double widened(double value) { return value; }
TANDEM_BODY inline float widened(uint16_t half) {
  const uint32_t word = static_cast<uint32_t>(half) << 16;
  float value;
  memcpy(&value, &word, sizeof(value));
  return value;
}

TANDEM_BODY inline void round_to(float value, float& to) { to = value; }
TANDEM_BODY inline void round_to(double value, double& to) { to = value; }
/// To the nearest, ties to even; a NaN stays a NaN.
TANDEM_BODY inline void round_to(float value, uint16_t& to) {
  uint32_t word;
  memcpy(&word, &value, sizeof(word));
  const uint32_t rounded = (word + 0x7FFF + ((word >> 16) & 1)) >> 16, quiet = (word >> 16) | 0x40;
  to = static_cast<uint16_t>(value == value ? rounded : quiet);
}

template <class T>
TANDEM_BODY T larger(T a, T b) {
  return a > b ? a : b;
}
template <class T>
TANDEM_BODY T smaller(T a, T b) {
  return a < b ? a : b;
}

/// Neighbours in memory that one index works on. A device moves up to 16 bytes at once where they are aligned.
template <class T, int n>
struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) Pack {
  T at[n];
};

/// As many numbers as 16 bytes hold.
template <class S>
inline constexpr int kWidePack = static_cast<int>(16 / sizeof(S));

inline constexpr int64_t packs_of(int64_t count, int n) { return (count + n - 1) / n; }

template <class P>
TANDEM_BODY bool is_aligned(const void* at) {
  return reinterpret_cast<uintptr_t>(at) % alignof(P) == 0;
}

/// A whole pack between aligned addresses.
template <class P>
TANDEM_BODY void copy_pack(const void* from, void* to) {
#ifdef __CUDA_ARCH__  // memcpy would move single bytes
  *static_cast<P*>(to) = *static_cast<const P*>(from);
#else
  memcpy(to, from, sizeof(P));
#endif
}

/// The numbers at `from`, of which `left` exist; the others become 0.
template <int n, class S>
TANDEM_BODY Pack<AbnNumber<S>, n> load_pack(const S* from, int64_t left) {
  Pack<S, n> stored;
  if (left >= n && is_aligned<Pack<S, n>>(from)) {
    copy_pack<Pack<S, n>>(from, &stored);
  } else {
    TANDEM_UNROLL
    for (int k = 0; k < n; ++k) stored.at[k] = k < left ? from[k] : S{};
  }
  Pack<AbnNumber<S>, n> values;
  TANDEM_UNROLL
  for (int k = 0; k < n; ++k) values.at[k] = widened(stored.at[k]);
  return values;
}

/// Rounds to S, and writes what exists at `to`.
template <class S, class T, int n>
TANDEM_BODY void store_pack(const Pack<T, n>& values, S* to, int64_t left) {
  Pack<S, n> stored;
  TANDEM_UNROLL
  for (int k = 0; k < n; ++k) round_to(values.at[k], stored.at[k]);
  if (left >= n && is_aligned<Pack<S, n>>(to)) {
    copy_pack<Pack<S, n>>(&stored, to);
  } else {
    TANDEM_UNROLL
    for (int k = 0; k < n; ++k) {
      if (k < left) to[k] = stored.at[k];
    }
  }
}

/// The combination of two sums.
struct Add {
  template <class T>
  TANDEM_BODY T operator()(T a, T b) const {
    return a + b;
  }
  template <class T, int n>
  TANDEM_BODY Pack<T, n> operator()(Pack<T, n> a, const Pack<T, n>& b) const {
    TANDEM_UNROLL
    for (int k = 0; k < n; ++k) a.at[k] += b.at[k];
    return a;
  }
};

/// That of two maxima.
struct Larger {
  template <class T>
  TANDEM_BODY T operator()(T a, T b) const {
    return larger(a, b);
  }
  template <class T, int n>
  TANDEM_BODY Pack<T, n> operator()(Pack<T, n> a, const Pack<T, n>& b) const {
    TANDEM_UNROLL
    for (int k = 0; k < n; ++k) a.at[k] = larger(a.at[k], b.at[k]);
    return a;
  }
};

}  // namespace tandem::kernels
