#pragma once
#include <limits>

#include "tandem/kernels/grid/body.h"
#include "tandem/kernels/score_kernels.h"

/// Bodies of score_kernels.h. A pair of indices (row, pack) owns neighbouring columns of a row.
namespace tandem::kernels {

/// Samples of a sum over classes.
template <class T>
inline constexpr int kScoreSums = kWidePack<T>;

template <class T>
using ScorePack = Pack<T, kScoreSums<T>>;

template <int n, class T, class S>
TANDEM_BODY Pack<T, n> load_scores(const Block<T, S>& block, int64_t row, int64_t column) {
  auto scores = load_pack<n>(block.products + row * block.columns + column, block.columns - column);
  const T factor = block.factors[row];
  TANDEM_UNROLL
  for (int k = 0; k < n; ++k) scores.at[k] *= factor;
  return scores;
}

/// Of the classes seen so far. Source: Milakov and Gimelshein 2018, Online normalizer calculation for softmax,
/// algorithm 3 (arXiv:1805.02867).
template <class T>
struct OnlineSums {
  ScorePack<T> maximum, sum, total;
};

template <class T>
OnlineSums<T> no_classes() {
  OnlineSums<T> none{};
  for (T& maximum : none.maximum.at) maximum = std::numeric_limits<T>::lowest();
  return none;
}

struct MergeOnlineSums {
  template <class T>
  TANDEM_BODY OnlineSums<T> operator()(OnlineSums<T> a, const OnlineSums<T>& b) const {
    TANDEM_UNROLL
    for (int k = 0; k < kScoreSums<T>; ++k) {
      const T above = b.maximum.at[k] - a.maximum.at[k], less = std::exp(-std::fabs(above));
      a.sum.at[k] = above > T(0) ? a.sum.at[k] * less + b.sum.at[k] : a.sum.at[k] + b.sum.at[k] * less;
      a.maximum.at[k] = larger(a.maximum.at[k], b.maximum.at[k]);
      a.total.at[k] += b.total.at[k];
    }
    return a;
  }
};

template <class T, class S>
struct OnlineValue {
  Block<T, S> block;

  TANDEM_BODY OnlineSums<T> operator()(int64_t row, int64_t pack) const {
    const auto scores = load_scores<kScoreSums<T>>(block, row, pack * kScoreSums<T>);
    OnlineSums<T> of{scores, {}, scores};
    TANDEM_UNROLL
    for (T& one : of.sum.at) one = 1;
    return of;
  }
};

/// Merges a block's sums into the running ones.
template <class T>
struct OnlineOut {
  RunningRows<T> running;
  int64_t columns;

  TANDEM_BODY void operator()(int64_t pack, const OnlineSums<T>& sums) const {
    const int64_t at = pack * kScoreSums<T>, left = columns - at;
    const bool counts = running.total != nullptr;
    OnlineSums<T> before{
        load_pack<kScoreSums<T>>(running.maximum + at, left), load_pack<kScoreSums<T>>(running.sum + at, left), {}};
    if (counts) before.total = load_pack<kScoreSums<T>>(running.total + at, left);
    const auto after = MergeOnlineSums{}(before, sums);
    store_pack(after.maximum, running.maximum + at, left);
    store_pack(after.sum, running.sum + at, left);
    if (counts) store_pack(after.total, running.total + at, left);
  }
};

/// Gradients of neighbouring scores of a row, and their products with the scores.
template <class T, int n>
struct ScoreGradients {
  Pack<T, n> gradient, along;
};

template <class T, class S>
struct ScoreShares {
  Block<T, S> block;
  ShareRows<T> shares;
  T filter;

  template <int n>
  TANDEM_BODY ScoreGradients<T, n> gradients(int64_t row, int64_t column) const {
    const int64_t left = block.columns - column;
    ScoreGradients<T, n> of{{}, load_scores<n>(block, row, column)};
    const auto log_sum = load_pack<n>(shares.log_sum + column, left), share = load_pack<n>(shares.share + column, left),
               floor = load_pack<n>(shares.floor + column, left);
    TANDEM_UNROLL
    for (int k = 0; k < n; ++k) {
      const T score = of.along.at[k], below = smaller(score - log_sum.at[k], T(0));
      of.gradient.at[k] = score > filter ? T(0) : share.at[k] * std::exp(below) - floor.at[k];
      of.along.at[k] = of.gradient.at[k] * score;
    }
    return of;
  }
};

/// Score times gradient, for the sums over classes.
template <class T, class S>
struct AlongValue {
  ScoreShares<T, S> of;

  TANDEM_BODY ScorePack<T> operator()(int64_t row, int64_t pack) const {
    return of.template gradients<kScoreSums<T>>(row, pack * kScoreSums<T>).along;
  }
};

template <class T>
struct AddToColumns {
  T* sums;
  int64_t columns;

  TANDEM_BODY void operator()(int64_t pack, const ScorePack<T>& more) const {
    const int64_t at = pack * kScoreSums<T>, left = columns - at;
    store_pack(Add{}(load_pack<kScoreSums<T>>(sums + at, left), more), sums + at, left);
  }
};

/// The same for the sums over samples; replaces the products by their gradients.
template <class T, class S>
struct DifferentiateValue {
  static constexpr int kNumbers = kWidePack<S>;

  ScoreShares<T, S> of;

  TANDEM_BODY T operator()(int64_t row, int64_t pack) const {
    const int64_t column = pack * kNumbers;
    const auto& block = of.block;
    auto [gradient, along] = of.template gradients<kNumbers>(row, column);
    const T factor = block.factors[row];
    T sum = 0;
    TANDEM_UNROLL
    for (int k = 0; k < kNumbers; ++k) {
      gradient.at[k] *= factor;
      sum += along.at[k];
    }
    store_pack(gradient, block.products + row * block.columns + column, block.columns - column);
    return sum;
  }
};

template <class T>
struct StoreRow {
  T* out;

  TANDEM_BODY void operator()(int64_t row, T value) const { out[row] = value; }
};

}  // namespace tandem::kernels
