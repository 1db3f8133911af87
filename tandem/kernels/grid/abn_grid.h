#pragma once
#include "tandem/kernels/grid/abn_bodies.h"
#include "tandem/kernels/grid/abn_channel_bodies.h"
#include "tandem/kernels/grid/grid.h"

/// abn_kernels.h on a grid: the same contracts, but that sums are always in double, whichever form wants them.
namespace tandem::kernels {

template <Grid G, class S>
void abn_forward_on(G& grid, const AbnForward<AbnNumber<S>>& how, int64_t rows, int64_t channels, S* x,
                    uint8_t* sides) {
  const bool swish = how.kind == Invertible::swish;
  const int64_t packs = swish ? side_bytes(channels) : packs_of(channels, kAbnNumbers);
  grid.for_each(rows * packs, AbnForwardBody<S>{how, channels, packs, x, swish ? sides : nullptr});
}

inline int64_t abn_scratch(int64_t rows, int64_t channels) {
  return column_scratch<AbnSums>(rows, packs_of(channels, kAbnSums));
}

template <class S>
AbnInverted<S> abn_inverted_rows(const AbnBackward<S>& in, int64_t channels) {
  return {in, channels, side_bytes(channels)};
}

/// abn_gradient_sums(), and abn_unfold_swish() where `to` is not null. scratch: abn_scratch() bytes.
template <Grid G, class S>
void abn_gradient_sums_on(G& grid, const AbnBackward<S>& in, int64_t rows, int64_t channels, const AbnUnfolded<S>& to,
                          double* sum, double* product, void* scratch) {
  grid.reduce_columns(rows, packs_of(channels, kAbnSums), AbnSumsValue<S>{abn_inverted_rows(in, channels), to},
                      AddAbnSums{}, AbnSums{}, AbnSumsOut{channels, sum, product}, scratch);
}

template <Grid G, class S>
void abn_gradient_apply_on(G& grid, const AbnBackward<S>& in, const AbnApply<AbnNumber<S>>& how, int64_t rows,
                           int64_t channels, S* out) {
  const int64_t packs = packs_of(channels, kAbnNumbers);
  grid.for_each(rows * packs, AbnApplyBody<S>{abn_inverted_rows(in, channels), how, packs, out});
}

}  // namespace tandem::kernels
