#pragma once
#include <cstdint>
#include <cstring>

// Vectors of 64 bytes for kernels that are compiled for several CPUs. Everything here is inlined into those kernels.

// One source for all CPUs: the compiler makes several versions of each entry point, and the loader picks one. The
// loader cannot choose under a sanitizer, so sanitizer builds get the plain version.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TANDEM_FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TANDEM_FOR_EACH_CPU
#endif
#define TANDEM_INLINE [[gnu::always_inline]] inline

namespace tandem {

template <class T>
struct Vectors;
template <>
struct Vectors<float> {
  using Values = float __attribute__((vector_size(64)));
  using Bits = int32_t __attribute__((vector_size(64)));
};
template <>
struct Vectors<double> {
  using Values = double __attribute__((vector_size(64)));
  using Bits = int64_t __attribute__((vector_size(64)));
};
template <class T>
using Vector = typename Vectors<T>::Values;
template <class T>
TANDEM_INLINE Vector<T> load(const T* from) {
  Vector<T> values;
  std::memcpy(&values, from, sizeof(values));
  return values;
}

template <class T>
TANDEM_INLINE void store(const Vector<T>& values, T* to) {
  std::memcpy(to, &values, sizeof(values));
}

using Words = uint32_t __attribute__((vector_size(64)));
using Halves = uint16_t __attribute__((vector_size(32)));

/// bfloat16's bits are the upper half of a float's.
TANDEM_INLINE Vector<float> load(const uint16_t* from) {
  Halves halves;
  std::memcpy(&halves, from, sizeof(halves));
  const Words words = __builtin_convertvector(halves, Words) << 16;
  Vector<float> values;
  std::memcpy(&values, &words, sizeof(values));
  return values;
}

/// Rounds to the nearest, ties to even; a NaN stays a NaN.
TANDEM_INLINE void store(const Vector<float>& values, uint16_t* to) {
  Words words;
  std::memcpy(&words, &values, sizeof(words));
  const Words rounded = (words + 0x7FFF + ((words >> 16) & 1)) >> 16;
  const Words quiet = (words >> 16) | 0x40;
  const auto halves = __builtin_convertvector(values == values ? rounded : quiet, Halves);
  std::memcpy(to, &halves, sizeof(halves));
}

}  // namespace tandem
