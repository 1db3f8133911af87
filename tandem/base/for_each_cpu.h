// Compiles the file TANDEM_LOOPS once for each target of base/cpu.h. It has no include guard: a source defines
// TANDEM_LOOPS and includes this once, after all headers it needs. Code of the standard library must not be compiled
// for one target only: the linker could choose that copy for all callers. So TANDEM_LOOPS includes no such header, and
// what it defines lies in an unnamed namespace, in it the namespace TANDEM_TARGET. There, TANDEM_VECTOR_BYTES is the
// width of a vector register. TANDEM_FOR_CPU(call) calls and returns the version for this machine's CPU.
#include "tandem/base/cpu.h"

#define TANDEM_INLINE [[gnu::always_inline]] inline

#if defined(__x86_64__)

#define TANDEM_FOR_CPU(call)            \
  switch (::tandem::cpu::chosen()) {    \
    case ::tandem::cpu::Target::avx512: \
      return avx512::call;              \
    case ::tandem::cpu::Target::avx2:   \
      return avx2::call;                \
    default:                            \
      return sse4::call;                \
  }

#define TANDEM_TARGET sse4
#define TANDEM_VECTOR_BYTES 16
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("sse4.2,popcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("sse4.2,popcnt")
#endif
#include TANDEM_LOOPS
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef TANDEM_TARGET
#undef TANDEM_VECTOR_BYTES

#define TANDEM_TARGET avx2
#define TANDEM_VECTOR_BYTES 32
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,bmi,bmi2,popcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2,popcnt")
#endif
#include TANDEM_LOOPS
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef TANDEM_TARGET
#undef TANDEM_VECTOR_BYTES

#define TANDEM_TARGET avx512
#define TANDEM_VECTOR_BYTES 64
#if defined(__clang__)
#pragma clang attribute push(                                                                        \
    __attribute__((target("avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,bmi,bmi2,popcnt"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,bmi,bmi2,popcnt")
#endif
#include TANDEM_LOOPS
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef TANDEM_TARGET
#undef TANDEM_VECTOR_BYTES

#else  // aarch64

#define TANDEM_FOR_CPU(call) return neon::call;
#define TANDEM_TARGET neon
#define TANDEM_VECTOR_BYTES 16
#include TANDEM_LOOPS
#undef TANDEM_TARGET
#undef TANDEM_VECTOR_BYTES

#endif
