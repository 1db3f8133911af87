#pragma once
#include "tandem/kernels/grid/body.h"
#include "tandem/kernels/margin.h"
#include "tandem/kernels/score_kernels.h"

/// The rows of a batch whose targets are among some classes: what a margin does to their scores, in float64. Index i is
/// a target, in the order of the classes; of one row there is at most one.
namespace tandem::kernels {

/// What is known of a target.
struct TargetNumbers {
  double product, factor;                // the score is one times the other
  double feature_length, weight_length;  // 1 where normalised, or where nothing depends on it
  double score;                          // without margin
  double value, slope;                   // with it, and its derivative by the score
  double radial;                         // derivative of the value by log |x| (and by log |w|) beyond the slope's
  double left_out;                       // the score that stands for it where it is left out
  double gradient;                       // of the loss by the value
};

/// Where targets stand in a block of classes that begins with `first`.
template <class T, class S>
struct TargetEntries {
  const int64_t *rows, *places;  // of each target: its sample, and its class among those that are scored
  int64_t first;
  Block<T, S> block;

  TANDEM_BODY S* entry(int64_t i) const { return block.products + (places[i] - first) * block.columns + rows[i]; }
};

/// From the block's products to value, slope and radial.
template <class T, class S>
struct ScoreTargetBody {
  TargetEntries<T, S> of;
  TargetNumbers* targets;
  Margin margin;
  double scale;
  bool has_product;  // the block's are rounded: not to be read

  TANDEM_BODY void operator()(int64_t i) const {
    auto& target = targets[i];
    target.factor = static_cast<double>(of.block.factors[of.places[i] - of.first]);
    if (!has_product) target.product = static_cast<double>(widened(*of.entry(i)));
    target.score = target.value = target.product * target.factor;
    target.slope = 1;
    target.radial = 0;
    if (margin.is_none()) return;
    const double size = scale * target.feature_length * target.weight_length;
    const double cosine = size > 0 ? target.score / size : 0.0;
    const auto of_cosine = apply_margin(margin, cosine);
    target.value = size * of_cosine.value;
    target.slope = of_cosine.slope;
    target.radial = size * (of_cosine.value - of_cosine.slope * cosine);
  }
};

/// Stands for a target's score where rounding would hurt it: small beside any score, so that it adds nothing.
inline constexpr double kLeftOutScore = -3e4;

/// Writes values into a block; where they are left out, a score that adds nothing.
template <class T, class S>
struct PutTargetBody {
  TargetEntries<T, S> of;
  TargetNumbers* targets;
  bool leaves_out;

  TANDEM_BODY void operator()(int64_t i) const {
    auto& target = targets[i];
    const double factor = static_cast<double>(of.block.factors[of.places[i] - of.first]);
    round_to(static_cast<T>((leaves_out ? kLeftOutScore : target.value) / factor), *of.entry(i));
    if (leaves_out) target.left_out = static_cast<double>(widened(*of.entry(i))) * factor;
  }
};

template <class T, class S>
struct ClearTargetBody {
  TargetEntries<T, S> of;

  TANDEM_BODY void operator()(int64_t i) const { *of.entry(i) = S{}; }
};

/// Adds the targets that were left out to the sums over all classes.
template <class T>
struct AddTargetBody {
  const int64_t* rows;
  const TargetNumbers* targets;
  RunningRows<T> sums;

  TANDEM_BODY void operator()(int64_t i) const {
    const int64_t row = rows[i];
    const double value = targets[i].value, maximum = static_cast<double>(sums.maximum[row]);
    const double most = larger(maximum, value), less = std::exp(-std::fabs(value - maximum));
    const double sum = static_cast<double>(sums.sum[row]);
    sums.maximum[row] = static_cast<T>(most);
    const double rounded_off = most - static_cast<double>(sums.maximum[row]);  // little: its exponential is 1 more
    sums.sum[row] = static_cast<T>((value > maximum ? sum * less + 1 : sum + less) * (1 + rounded_off));
    if (sums.total != nullptr) {
      sums.total[row] = static_cast<T>(static_cast<double>(sums.total[row]) + (value - targets[i].left_out));
    }
  }
};

/// Writes values into a line of one number a row.
template <class T>
struct TargetLineBody {
  const int64_t* rows;
  const TargetNumbers* targets;
  T* line;

  TANDEM_BODY void operator()(int64_t i) const { line[rows[i]] = static_cast<T>(targets[i].value); }
};

/// The loss's derivatives by the values.
template <class T>
struct TargetGradientBody {
  const int64_t* rows;
  TargetNumbers* targets;
  ShareRows<T> shares;
  double smoothing;

  TANDEM_BODY void operator()(int64_t i) const {
    const int64_t row = rows[i];
    const double likelihood = std::exp(smaller(targets[i].value - static_cast<double>(shares.log_sum[row]), 0.0));
    targets[i].gradient = static_cast<double>(shares.share[row]) * (likelihood - (1.0 - smoothing)) -
                          static_cast<double>(shares.floor[row]);
  }
};

/// The same, from a block of gradients.
template <class T, class S>
struct ReadTargetGradientBody {
  TargetEntries<T, S> of;
  TargetNumbers* targets;

  TANDEM_BODY void operator()(int64_t i) const { targets[i].gradient = static_cast<double>(widened(*of.entry(i))); }
};

/// Writes the targets' gradients into a block of gradients, and adds their part along the class's weight to
/// `along_classes` [classes] and along the features to `along_rows` [N]; null: not wanted. Where a length is divided
/// out, that part is score times gradient; elsewhere it is what the margin adds. Index: a class that is a target, whose
/// targets are starts[index] .. starts[index + 1] - 1 of all.
template <class T, class S>
struct PutTargetGradientBody {
  TargetEntries<T, S> of;
  const TargetNumbers* targets;
  const int64_t* starts;
  bool normalise_features, normalise_weight;
  T* along_classes;
  double* along_rows;

  TANDEM_BODY static double part(bool is_normalised, double of_score, double score, double radial, double length) {
    constexpr double kLeastSquare = 1e-24;
    return is_normalised ? of_score * score : radial / larger(length * length, kLeastSquare);
  }

  TANDEM_BODY void operator()(int64_t index) const {
    for (int64_t i = starts[index]; i < starts[index + 1]; ++i) {
      const auto& target = targets[i];
      const double of_score = target.gradient * target.slope, radial = target.gradient * target.radial;
      if (of.block.products != nullptr) round_to(static_cast<T>(of_score * target.factor), *of.entry(i));
      along_classes[of.places[i] - of.first] +=
          static_cast<T>(part(normalise_weight, of_score, target.score, radial, target.weight_length));
      if (along_rows == nullptr) continue;
      along_rows[of.rows[i]] += part(normalise_features, of_score, target.score, radial, target.feature_length);
    }
  }
};

/// The derivative of the loss by a target's product.
TANDEM_BODY inline double product_gradient(const TargetNumbers& target) {
  return target.gradient * target.slope * target.factor;
}

/// Adds what the targets give to the features' gradient, [N, dim]. Index: a pack of a target.
template <class T>
struct AddToFeaturesBody {
  static constexpr int kNumbers = kWidePack<T>;

  const int64_t *rows, *places;
  int64_t first;
  const TargetNumbers* targets;
  const T* weight;  // [classes, dim]
  int64_t dim, packs;
  T* sum;

  TANDEM_BODY void operator()(int64_t index) const {
    const int64_t i = index / packs, column = index % packs * kNumbers, left = dim - column;
    const auto by = static_cast<T>(product_gradient(targets[i]));
    const auto own = load_pack<kNumbers>(weight + (places[i] - first) * dim + column, left);
    T* to = sum + rows[i] * dim + column;
    auto values = load_pack<kNumbers>(to, left);
    TANDEM_UNROLL
    for (int k = 0; k < kNumbers; ++k) values.at[k] += by * own.at[k];
    store_pack(values, to, left);
  }
};

/// The same for the weight's, [classes, dim]. Index: a pack of a class that is a target, as in PutTargetGradientBody.
template <class T, class S>
struct AddToWeightBody {
  static constexpr int kNumbers = kWidePack<T>;

  const int64_t *rows, *places, *starts;
  int64_t first;
  const TargetNumbers* targets;
  const S* inputs;  // [N, dim]
  int64_t dim, packs;
  T* sum;

  TANDEM_BODY void operator()(int64_t index) const {
    const int64_t begin = starts[index / packs], end = starts[index / packs + 1];
    const int64_t column = index % packs * kNumbers, left = dim - column;
    T* to = sum + (places[begin] - first) * dim + column;
    auto values = load_pack<kNumbers>(to, left);
    for (int64_t i = begin; i < end; ++i) {
      const auto by = static_cast<T>(product_gradient(targets[i]));
      const auto input = load_pack<kNumbers>(inputs + rows[i] * dim + column, left);
      TANDEM_UNROLL
      for (int k = 0; k < kNumbers; ++k) values.at[k] += by * input.at[k];
    }
    store_pack(values, to, left);
  }
};

}  // namespace tandem::kernels
