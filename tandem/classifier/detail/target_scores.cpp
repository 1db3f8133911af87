#include "tandem/classifier/detail/target_scores.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace tandem::classifier::detail {
namespace {

/// Stands for a target's score where rounding would hurt it: small beside any score, so that it adds nothing.
constexpr double kLeftOut = -3e4;

}  // namespace

void multiply_targets(LocalTargets& targets, const ClassBlocks& blocks, const Tensor& features, const Tensor& weight) {
  const auto all = targets.in_places(0, blocks.num_classes());
  if (all.empty()) return;
  std::vector<int64_t> ids, rows;
  for (const auto& target : all) {
    ids.push_back(target.target_class);
    rows.push_back(target.row);
  }
  const auto row_ids = at::tensor(rows, at::kLong).to(features.device());
  auto x = features.index_select(0, row_ids).mul_(blocks.scoring().scale);
  const auto& inverse = blocks.inverse_features();
  if (inverse.defined()) x.mul_(inverse.index_select(0, row_ids).unsqueeze(1));
  const auto own = weight.index_select(0, at::tensor(ids, at::kLong).to(weight.device()));
  const auto products = numbers_of(x.mul_(own).sum({1}));
  for (size_t i = 0; i < all.size(); ++i) all[i].product = products[i];
}

void read_targets(LocalTargets& targets, const Tensor& products, const Tensor& factors, ClassRange classes) {
  const auto own = targets.in_places(classes.begin, classes.end);
  if (own.empty()) return;
  const auto put = [&](auto from, auto member) {
    for (auto& target : own) target.*member = *from++;
  };
  if (factors.is_cpu() || !products.defined()) {
    put(read_numbers(factors, own, classes.begin).begin(), &Target::factor);
    if (products.defined()) put(read_entries(products, own, classes.begin).begin(), &Target::product);
    return;
  }
  const auto all =
      numbers_of(at::cat({numbers_at(factors, own, classes.begin), entries_at(products, own, classes.begin)}));
  put(all.begin(), &Target::factor);
  put(all.begin() + static_cast<int64_t>(own.size()), &Target::product);
}

void apply_margins(LocalTargets& targets, const Scoring& scoring, ClassRange classes) {
  for (auto& target : targets.in_places(classes.begin, classes.end)) {
    apply_margin(target, target.product * target.factor, scoring);
  }
}

RowShares::RowShares(const Tensor& log_sum, const Tensor& share, const Tensor& floor)
    : rows_(log_sum.numel()), all_(numbers_of(at::cat({log_sum, share, floor}))) {}

void put_target_values(LocalTargets& targets, const ClassBlocks& blocks, Tensor& products, ClassRange classes) {
  const auto own = targets.in_places(classes.begin, classes.end);
  const bool is_rounded = blocks.is_rounded();
  std::vector<double> values;
  for (const auto& target : own) values.push_back((is_rounded ? kLeftOut : target.value) / target.factor);
  write_entries(products, own, classes.begin, values);
  if (!is_rounded || blocks.scoring().smoothing == 0) return;
  const auto stored = read_entries(products, own, classes.begin);  // rounded
  for (size_t i = 0; i < own.size(); ++i) own[i].left_out = stored[i] * own[i].factor;
}

void add_targets(const LocalTargets& targets, Running& rows) {
  auto maximum = numbers_of(rows.maximum), sum = numbers_of(rows.sum);
  auto total = rows.total.defined() ? numbers_of(rows.total) : std::vector<double>();
  for (const auto& target : targets.all()) {
    const auto row = target.row;
    const double larger = std::max(maximum[row], target.value);
    sum[row] = sum[row] * std::exp(maximum[row] - larger) + std::exp(target.value - larger);
    maximum[row] = larger;
    if (!total.empty()) total[row] += target.value - target.left_out;
  }
  const auto put = [](Tensor& numbers, const std::vector<double>& values) {
    numbers = at::tensor(values, at::kDouble).to(numbers.options());
  };
  put(rows.maximum, maximum);
  put(rows.sum, sum);
  if (rows.total.defined()) put(rows.total, total);
}

std::vector<double> target_gradients(LocalTargets& targets, const RowShares& rows, double smoothing,
                                     ClassRange classes) {
  std::vector<double> gradients;
  for (const auto& target : targets.in_places(classes.begin, classes.end)) {
    const auto [log_sum, share, floor] = rows.at(target.row);
    gradients.push_back(share * (std::exp(target.value - log_sum) - (1.0 - smoothing)) - floor);
  }
  return gradients;
}

void put_target_gradients(LocalTargets& targets, const Scoring& scoring, const std::vector<double>& of_values,
                          ClassRange classes, Tensor& products, Tensor& along_classes,
                          std::vector<double>& along_rows) {
  const auto own = targets.in_places(classes.begin, classes.end);
  if (own.empty()) return;
  constexpr double kLeastSquare = 1e-24;
  std::vector<double> of_products, along;
  std::vector<int64_t> places;
  for (size_t i = 0; i < own.size(); ++i) {
    const auto& target = own[i];
    const double of_score = of_values[i] * target.slope, radial = of_values[i] * target.radial;
    const auto share_of = [&](bool normalised, double length) {
      return normalised ? of_score * target.score : radial / std::max(length * length, kLeastSquare);
    };
    of_products.push_back(of_score * target.factor);
    places.push_back(target.place - classes.begin);
    along.push_back(share_of(scoring.normalise_weight, target.weight_length));
    along_rows[target.row] += share_of(scoring.normalise_features, target.feature_length);
  }
  write_entries(products, own, classes.begin, of_products);
  add_numbers(along_classes, places, along);
}

}  // namespace tandem::classifier::detail
