#pragma once
#include <vector>

// Which version of the vector kernels runs. Each kernel is compiled once for each of these (base/for_each_cpu.inc).
namespace tandem::cpu {

enum class Target {
  sse4,    // x86-64 with SSE4.2: vectors of 16 bytes
  avx2,    // AVX2, FMA, BMI1, BMI2: 32 bytes
  avx512,  // AVX-512 F, BW, CD, DQ, VL: 64 bytes
  neon,    // aarch64: 16 bytes
};

const char* name(Target target);

/// The targets that this machine has, the fastest last. Never empty.
const std::vector<Target>& available();

/// The target in use: the fastest, unless TANDEM_CPU names another. Throws SettingsError if TANDEM_CPU names none that
/// this machine has.
Target chosen();

/// For tests: makes `target`, which this machine must have, the one in use. Not while a kernel runs.
void choose(Target target);

}  // namespace tandem::cpu
