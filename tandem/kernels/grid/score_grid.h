#pragma once
#include "tandem/kernels/grid/exponent_bodies.h"
#include "tandem/kernels/grid/grid.h"
#include "tandem/kernels/grid/score_bodies.h"
#include "tandem/kernels/grid/weight_bodies.h"

/// score_kernels.h on a grid: the same contracts. Columns need no multiple of kColumnUnit, but move faster with one.
namespace tandem::kernels {

/// Bytes of scratch for the passes over blocks of as many columns, and of as many rows or fewer.
template <class T>
int64_t score_scratch(int64_t rows, int64_t columns) {
  return column_scratch<OnlineSums<T>>(rows, packs_of(columns, kScoreSums<T>));
}

template <Grid G, class T, class S>
void add_block_on(G& grid, const Block<T, S>& block, const RunningRows<T>& running, void* scratch) {
  grid.reduce_columns(block.rows, packs_of(block.columns, kScoreSums<T>), OnlineValue<T, S>{block}, MergeOnlineSums{},
                      no_classes<T>(), OnlineOut<T>{running, block.columns}, scratch);
}

template <Grid G, class T, class S>
void differentiate_block_on(G& grid, const Block<T, S>& block, const ShareRows<T>& shares, T filter, T* along_classes,
                            T* along_samples, void* scratch) {
  const ScoreShares<T, S> of{block, shares, filter};
  grid.reduce_columns(block.rows, packs_of(block.columns, kScoreSums<T>), AlongValue<T, S>{of}, Add{}, ScorePack<T>{},
                      AddToColumns<T>{along_samples, block.columns}, scratch);
  grid.reduce_rows(block.rows, packs_of(block.columns, kWidePack<S>), DifferentiateValue<T, S>{of}, Add{}, T(0),
                   StoreRow<T>{along_classes});
}

/// Writes E over the products of a tile, its exponents k [columns], and adds its classes to `running`
/// (exponent_bodies.h).
template <Grid G, class T, class S>
void exponentiate_block_on(G& grid, const Block<T, S>& block, int32_t* exponents, const ExponentRows<T>& running,
                           void* scratch) {
  if (block.rows == 0) return;
  const int64_t packs = packs_of(block.columns, kScoreSums<T>);
  grid.reduce_columns(block.rows, packs, ScoreValue<T, S>{block}, Larger{}, no_classes<T>().maximum,
                      ExponentOut<T>{exponents, block.columns}, scratch);
  grid.reduce_columns(block.rows, packs, ExponentialValue<T, S>{block, exponents}, Add{}, ScorePack<T>{},
                      ExponentialOut<T>{exponents, running, block.columns}, scratch);
}

/// Replaces along[row] by -factors[row]^2 (along[row] + gradient[row] . weight[row]): add_along() then takes out of a
/// gradient what lies along the weight.
template <Grid G, class T, class S>
void project_along_on(G& grid, const S* gradient, const T* weight, const T* factors, int64_t rows, int64_t columns,
                      T* along) {
  grid.reduce_rows(rows, packs_of(columns, kWidePack<T>), DotValue<T, S>{gradient, weight, columns}, Add{}, T(0),
                   ProjectionOut<T>{factors, along});
}

template <Grid G, class T, class S>
void add_along_on(G& grid, const S* gradient, const T* weight, const T* along, int64_t rows, int64_t columns, T* out) {
  const int64_t packs = packs_of(columns, kWidePack<T>);
  grid.for_each(rows * packs, AddAlongBody<T, S>{gradient, weight, along, columns, packs, out});
}

template <Grid G>
void add_rounded_on(G& grid, const uint16_t* values, int64_t count, float* sum) {
  grid.for_each(packs_of(count, AddRoundedBody::kNumbers), AddRoundedBody{values, count, sum});
}

/// inverse_lengths(), and round_rows() where `rounded` is not null.
template <Grid G, class T>
void inverse_lengths_on(G& grid, const T* values, int64_t rows, int64_t columns, uint16_t* rounded, T* out) {
  grid.reduce_rows(rows, packs_of(columns, kWidePack<T>), SquareValue<T>{values, columns, rounded}, Add{}, T(0),
                   InverseLengthOut<T>{out});
}

}  // namespace tandem::kernels
