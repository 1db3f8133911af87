#pragma once
#include "tandem/kernels/grid/block_code_bodies.h"
#include "tandem/kernels/grid/grid.h"

/// block_codes.h on a grid: the same contracts and bits.
namespace tandem::kernels {

template <Grid G>
void encode_on(G& grid, const float* x, int64_t count, int8_t* codes, float* scales) {
  grid.reduce_rows(code_blocks(count), kCodeBlock / kCodeNumbers, MagnitudeValue{x, count}, Larger{}, int32_t{0},
                   ScaleOut{scales});
  grid.for_each(packs_of(count, kCodeNumbers), EncodeBody{x, count, scales, codes});
}

template <Grid G>
void decode_on(G& grid, const int8_t* codes, const float* scales, int64_t count, float* x) {
  grid.for_each(packs_of(count, kCodeNumbers), DecodeBody{codes, count, scales, x});
}

}  // namespace tandem::kernels
