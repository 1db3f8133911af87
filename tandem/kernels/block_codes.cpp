#include "tandem/kernels/block_codes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#define TANDEM_LOOPS "tandem/kernels/detail/block_code_loops.inc"
#include "tandem/base/for_each_cpu.inc"

namespace tandem::kernels {

void encode(const float* x, int64_t count, int8_t* codes, float* scales) {
  TANDEM_FOR_CPU(encode(x, count, codes, scales))
}

void decode(const int8_t* codes, const float* scales, int64_t count, float* x) {
  TANDEM_FOR_CPU(decode(codes, scales, count, x))
}

}  // namespace tandem::kernels
