#include "tandem/classifier/detail/block_softmax.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tandem/classifier/detail/block_plan.h"
#include "tandem/memory/meter.h"

namespace tandem::classifier::detail {
namespace {

/// Where bfloat16 would round a target's score, it is left out by a score that is small beside any and added at the
/// end.
constexpr double kLeftOut = -3e4;

}  // namespace

BlockSoftmax::BlockSoftmax(const Tensor& features, const Tensor& weight, const Tensor& targets, int64_t first,
                           const Scoring& scoring, const BlockOptions& options, const ClassSample* sample)
    : scoring_(scoring),
      targets_(targets, first, features, weight, scoring, sample ? sample->ids : Tensor()),
      ids_(sample ? sample->ids : Tensor()),
      num_targets_(sample ? sample->num_targets : 0),
      log_weight_(sample ? sample->log_weight : 0),
      rows_(features.size(0)),
      classes_(sample ? sample->ids.numel() : weight.size(0)) {
  const auto plan =
      plan_blocks(options, scoring, rows_, features.size(1), classes_, features.scalar_type(), threads_for(features));
  columns_ = plan.columns;
  block_ = plan.block;
  num_lanes_ = plan.lanes;
  num_kept_ = plan.num_kept;
  product_type_ = plan.products;
}

/// Whether a target's score depends on a length by more than the slope says.
bool BlockSoftmax::has_radial() const {
  return !scoring_.margin.is_none() && !(scoring_.normalise_features && scoring_.normalise_weight);
}

Rows BlockSoftmax::rows_of(Range classes) const {
  return {classes.begin, classes.size(), ids_.defined() ? ids_.narrow(0, classes.begin, classes.size()) : Tensor()};
}

double BlockSoftmax::log_weight_of(Range classes) const { return classes.begin < num_targets_ ? 0.0 : log_weight_; }

double BlockSoftmax::filter() const {
  return scoring_.filter < 1.0 ? scoring_.filter * scoring_.scale : std::numeric_limits<double>::infinity();
}

Tensor BlockSoftmax::padded_rows(const Tensor& row_numbers) const {
  auto padded = at::zeros({columns_}, row_numbers.options());
  padded.narrow(0, 0, rows_).copy_(row_numbers);
  return padded;
}

/// Features as they enter the products: scaled, divided by their lengths where normalised, rows of zeros behind them.
Tensor BlockSoftmax::directions_of(const Tensor& features) const {
  auto directions = at::zeros({columns_, features.size(1)}, features.options());
  auto own = directions.narrow(0, 0, rows_);
  if (inverse_features_.defined()) {
    at::mul_out(own, features, (inverse_features_ * scoring_.scale).unsqueeze(1));
  } else {
    at::mul_out(own, features, at::scalar_tensor(scoring_.scale, features.options()));
  }
  return directions.to(product_type_);
}

Tensor BlockSoftmax::factors_of(Range classes, const at::TensorOptions& options) const {
  if (!scoring_.normalise_weight) return at::ones({classes.size()}, options);
  return inverse_weight_.narrow(0, classes.begin, classes.size());
}

bool BlockSoftmax::is_kept(Range classes) const { return kept_.defined() && classes.end <= num_kept_; }

std::vector<BlockSoftmax::Lane> BlockSoftmax::make_lanes(const Tensor& features) const {
  std::vector<Lane> lanes;
  const bool all_kept = kept_.defined() && num_kept_ == classes_;
  for (int64_t index = 0; index < num_lanes_; ++index) {
    auto& lane = lanes.emplace_back(Lane{.index = index});
    if (!all_kept) lane.products = at::empty({block_, columns_}, product_options(features));
    if (is_rounded()) lane.rounded = at::empty({block_, features.size(1)}, product_options(features));
  }
  return lanes;
}

/// No block holds both targets of a sample and others.
std::vector<BlockSoftmax::Range> BlockSoftmax::blocks() const {
  std::vector<Range> ranges;
  for (int64_t begin = 0, end; begin < classes_; begin = end) {
    end = std::min(begin + block_, begin < num_targets_ ? num_targets_ : classes_);
    ranges.push_back({begin, end});
  }
  return ranges;
}

/// Where the products of these classes are, or are put.
Tensor BlockSoftmax::buffer_of(const Lane& lane, Range classes) const {
  return is_kept(classes) ? kept_.narrow(0, classes.begin, classes.size()) : lane.products.narrow(0, 0, classes.size());
}

/// The rows as they enter the products.
Tensor BlockSoftmax::entering(const Tensor& own_weight, const Lane& lane) const {
  return is_rounded() ? lane.rounded.narrow(0, 0, own_weight.size(0)).copy_(own_weight) : own_weight;
}

/// The same, and their lengths are noted.
Tensor BlockSoftmax::measure(const Tensor& own_weight, const Lane& lane, Range classes) {
  if (!scoring_.normalise_weight) return entering(own_weight, lane);
  auto inverse = inverse_weight_.narrow(0, classes.begin, classes.size());
  if (!is_rounded()) {
    inverse.copy_(inverse_lengths(own_weight));
    return own_weight;
  }
  auto rounded = lane.rounded.narrow(0, 0, classes.size());
  round_rows(own_weight, rounded, inverse);
  return rounded;
}

at::TensorOptions BlockSoftmax::product_options(const Tensor& features) const {
  return features.options().dtype(product_type_);
}

/// In bfloat16 the targets' products are worked out again, in float32: a target's score decides most of its row's loss.
void BlockSoftmax::multiply_targets(const Tensor& features, const Tensor& weight) {
  const auto targets = targets_.in_places(0, classes_);
  if (targets.empty()) return;
  std::vector<int64_t> ids, rows;
  for (const auto& target : targets) {
    ids.push_back(target.target_class);
    rows.push_back(target.row);
  }
  const auto row_ids = at::tensor(rows, at::kLong).to(features.device());
  auto x = features.index_select(0, row_ids).mul_(scoring_.scale);
  if (inverse_features_.defined()) x.mul_(inverse_features_.index_select(0, row_ids).unsqueeze(1));
  const auto own = weight.index_select(0, at::tensor(ids, at::kLong).to(weight.device()));
  const auto products = numbers_of(x.mul_(own).sum({1}));
  for (size_t i = 0; i < targets.size(); ++i) targets[i].product = products[i];
}

void BlockSoftmax::read_targets(const Tensor& products, Range classes) {
  const auto targets = targets_.in_places(classes.begin, classes.end);
  const auto entries = read_entries(products, targets, classes.begin);
  for (size_t i = 0; i < targets.size(); ++i) targets[i].product = entries[i];
}

void BlockSoftmax::apply_margins(const Tensor& factors, Range classes) {
  for (auto& target : targets_.in_places(classes.begin, classes.end)) {
    target.factor = read_number(factors, target.place - classes.begin);
    apply_margin(target, target.product * target.factor, scoring_);
  }
}

void BlockSoftmax::put_target_values(Tensor& products, Range classes) {
  const auto targets = targets_.in_places(classes.begin, classes.end);
  std::vector<double> values;
  for (const auto& target : targets) values.push_back((is_rounded() ? kLeftOut : target.value) / target.factor);
  write_entries(products, targets, classes.begin, values);
  if (!is_rounded() || scoring_.smoothing == 0) return;
  const auto stored = read_entries(products, targets, classes.begin);  // rounded
  for (size_t i = 0; i < targets.size(); ++i) targets[i].left_out = stored[i] * targets[i].factor;
}

void BlockSoftmax::add_targets(Running& rows) {
  auto maximum = numbers_of(rows.maximum), sum = numbers_of(rows.sum);
  double* total = nullptr;
  auto totals = rows.total.defined() ? numbers_of(rows.total) : std::vector<double>();
  if (!totals.empty()) total = totals.data();
  for (const auto& target : targets_.all()) {
    const auto row = target.row;
    const double larger = std::max(maximum[row], target.value);
    sum[row] = sum[row] * std::exp(maximum[row] - larger) + std::exp(target.value - larger);
    maximum[row] = larger;
    if (total != nullptr) total[row] += target.value - target.left_out;
  }
  const auto put = [](Tensor& numbers, const std::vector<double>& values) {
    numbers = at::tensor(values, at::kDouble).to(numbers.options());
  };
  put(rows.maximum, maximum);
  put(rows.sum, sum);
  if (total != nullptr) put(rows.total, totals);
}

BlockSoftmax::OwnNumbers BlockSoftmax::forward(const Tensor& features, const Tensor& weight) {
  if (scoring_.normalise_features) inverse_features_ = inverse_lengths(features);
  if (scoring_.normalise_weight) inverse_weight_ = at::empty({classes_}, weight.options());
  const auto directions = directions_of(features);
  if (num_kept_ > 0) kept_ = at::empty({num_kept_, columns_}, product_options(features));
  if (is_rounded()) multiply_targets(features, weight);
  auto running = start_running(features, num_lanes_, columns_, scoring_.smoothing > 0);
  auto others = log_weight_ > 0 ? start_running(features, num_lanes_, columns_, false) : Running();
  for_each_block(features, [&](const Lane& lane, Range classes) {
    const auto own_weight = rows_of(classes).of(weight);
    auto products = buffer_of(lane, classes);
    at::mm_out(products, measure(own_weight, lane, classes), directions.t());
    const auto factors = factors_of(classes, weight.options());
    if (!is_rounded()) read_targets(products, classes);
    apply_margins(factors, classes);
    drop_above(products, factors, filter());
    put_target_values(products, classes);
    add_block(products, factors, lane.index, log_weight_of(classes) > 0 ? others : running);
  });
  auto merged = merge_lanes(running);
  if (log_weight_ > 0) add_others(merged, merge_lanes(others));
  if (is_rounded()) add_targets(merged);
  const auto own = [&](const Tensor& numbers) { return numbers.defined() ? numbers.narrow(0, 0, rows_) : numbers; };
  return {own(merged.maximum), own(merged.sum), own(merged.total)};
}

/// Their exponentials count exp(log_weight_) times.
void BlockSoftmax::add_others(Running& rows, const Running& others) const {
  const auto of_others = others.maximum + log_weight_, larger = at::maximum(rows.maximum, of_others);
  rows.sum = rows.sum * (rows.maximum - larger).exp_() + others.sum * (of_others - larger).exp_();
  rows.maximum = larger;
}

Tensor BlockSoftmax::whole_scores(const Tensor& features, const Tensor& weight) {
  num_lanes_ = 1;
  if (scoring_.normalise_features) inverse_features_ = inverse_lengths(features);
  if (scoring_.normalise_weight) inverse_weight_ = inverse_lengths(weight);
  const Range all = {0, classes_};
  const auto factors = factors_of(all, weight.options());
  kept_ = at::empty({classes_, columns_}, features.options());
  at::mm_out(kept_, weight, directions_of(features).t());
  auto scores = kept_ * factors.unsqueeze(1);
  if (scoring_.filter < 1.0) scores.masked_fill_(scores.gt(filter()), 0);
  read_targets(kept_, all);
  apply_margins(factors, all);
  std::vector<double> values;
  for (const auto& target : targets_.all()) values.push_back(target.value);
  write_entries(scores, targets_.all(), 0, values);
  return scores.narrow(1, 0, rows_).contiguous();
}

}  // namespace tandem::classifier::detail
