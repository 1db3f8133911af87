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

std::vector<double> numbers_of(const Tensor& x) {
  const auto numbers = x.to(at::kDouble).cpu().contiguous();
  return {numbers.const_data_ptr<double>(), numbers.const_data_ptr<double>() + numbers.numel()};
}

}  // namespace

/// The same numbers as Shares holds, for the targets.
class BlockSoftmax::RowGradients {
 public:
  RowGradients(const Tensor& log_sum, const Tensor& share, const Tensor& floor)
      : log_sum_(numbers_of(log_sum)), share_(numbers_of(share)), floor_(numbers_of(floor)) {}
  std::array<double, 3> at(int64_t row) const { return {log_sum_[row], share_[row], floor_[row]}; }

 private:
  std::vector<double> log_sum_, share_, floor_;
};

BlockSoftmax::BlockSoftmax(const Tensor& features, const Tensor& weight, const Tensor& targets, int64_t first,
                           const Scoring& scoring, const BlockOptions& options, const ClassSample* sample)
    : scoring_(scoring),
      targets_(targets, first, features, weight, scoring, sample ? sample->ids : Tensor()),
      ids_(sample ? sample->ids : Tensor()),
      num_targets_(sample ? sample->num_targets : 0),
      log_weight_(sample ? sample->log_weight : 0),
      rows_(features.size(0)),
      classes_(sample ? sample->ids.numel() : weight.size(0)) {
  const auto plan = plan_blocks(options, scoring, rows_, features.size(1), classes_, features.scalar_type());
  columns_ = plan.columns;
  block_ = plan.block;
  num_kept_ = plan.num_kept;
  product_type_ = plan.products;
}

/// Whether a target's score depends on a length by more than the slope says.
bool BlockSoftmax::has_radial() const {
  return !scoring_.margin.is_none() && !(scoring_.normalise_features && scoring_.normalise_weight);
}

/// No block holds both targets of a sample and others.
template <class Body>
void BlockSoftmax::for_each_block(const Body& body) const {
  for (int64_t begin = 0, end; begin < classes_; begin = end) {
    end = std::min(begin + block_, begin < num_targets_ ? num_targets_ : classes_);
    body(Range{begin, end});
  }
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

void BlockSoftmax::make_scratch(const Tensor& features) {
  if (kept_.defined() && num_kept_ == classes_) return;
  scratch_ = at::empty({std::min(block_, classes_), columns_}, product_options(features));
}

/// Where the products of these classes are, or are put.
Tensor BlockSoftmax::buffer_of(Range classes) {
  return is_kept(classes) ? kept_.narrow(0, classes.begin, classes.size()) : scratch_.narrow(0, 0, classes.size());
}

void BlockSoftmax::multiply(const Tensor& own_weight, const Tensor& directions, Tensor& products) const {
  at::mm_out(products, own_weight.to(products.scalar_type()), directions.t());
}

void BlockSoftmax::measure(const Tensor& own_weight, Range classes) {
  if (!scoring_.normalise_weight) return;
  inverse_weight_.narrow(0, classes.begin, classes.size()).copy_(inverse_lengths(own_weight));
}

at::TensorOptions BlockSoftmax::product_options(const Tensor& features) const {
  return features.options().dtype(product_type_);
}

/// In bfloat16 they are worked out again, in float32: a target's score decides most of its row's loss.
std::vector<double> BlockSoftmax::target_products(const Tensor& features, const Tensor& weight, const Tensor& products,
                                                  Range classes) {
  const auto targets = targets_.in_places(classes.begin, classes.end);
  if (!is_rounded() || targets.empty()) return read_entries(products, targets, classes.begin);
  std::vector<int64_t> ids, rows;
  for (const auto& target : targets) {
    ids.push_back(target.target_class);
    rows.push_back(target.row);
  }
  const auto row_ids = at::tensor(rows, at::kLong).to(features.device());
  auto x = features.index_select(0, row_ids).mul_(scoring_.scale);
  if (inverse_features_.defined()) x.mul_(inverse_features_.index_select(0, row_ids).unsqueeze(1));
  return numbers_of((x * weight.index_select(0, at::tensor(ids, at::kLong).to(weight.device()))).sum({1}));
}

void BlockSoftmax::apply_margins(const std::vector<double>& products, const Tensor& factors, Range classes) {
  const auto targets = targets_.in_places(classes.begin, classes.end);
  for (size_t i = 0; i < targets.size(); ++i) {
    auto& target = targets[i];
    target.factor = read_number(factors, target.place - classes.begin);
    apply_margin(target, products[i] * target.factor, scoring_);
  }
}

void BlockSoftmax::put_target_values(Tensor& products, Range classes) {
  const auto targets = targets_.in_places(classes.begin, classes.end);
  std::vector<double> values;
  for (const auto& target : targets) values.push_back((is_rounded() ? kLeftOut : target.value) / target.factor);
  write_entries(products, targets, classes.begin, values);
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
    if (total != nullptr) total[row] += target.value - kLeftOut;
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
  make_scratch(features);
  auto running = start_running(features, columns_, scoring_.smoothing > 0);
  auto others = log_weight_ > 0 ? start_running(features, columns_, false) : Running();
  for_each_block([&](Range classes) {
    const auto own_weight = rows_of(classes).of(weight);
    measure(own_weight, classes);
    const auto factors = factors_of(classes, weight.options());
    auto products = buffer_of(classes);
    multiply(own_weight, directions, products);
    apply_margins(target_products(features, weight, products, classes), factors, classes);
    drop_above(products, factors, filter());
    put_target_values(products, classes);
    add_block(products, factors, log_weight_of(classes) > 0 ? others : running);
  });
  scratch_.reset();
  auto merged = merge_threads(running);
  if (log_weight_ > 0) add_others(merged, merge_threads(others));
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

/// The losses' derivatives by the targets' scores with margin.
std::vector<double> BlockSoftmax::target_gradients(Range classes, const RowGradients& rows) {
  std::vector<double> gradients;
  for (const auto& target : targets_.in_places(classes.begin, classes.end)) {
    const auto [log_sum, share, floor] = rows.at(target.row);
    gradients.push_back(share * (std::exp(target.value - log_sum) - (1.0 - scoring_.smoothing)) - floor);
  }
  return gradients;
}

BlockSoftmax::Gradients BlockSoftmax::start_gradients(const Tensor& features, const Tensor& weight,
                                                      const RowUpdate& update) const {
  Gradients gradients{.update = update};
  gradients.inputs = directions_of(features);
  gradients.features = at::zeros({columns_, features.size(1)}, features.options());
  gradients.along_samples = start_lines(features, columns_);
  gradients.along_rows.assign(rows_, 0.0);
  const memory::Scope scope(memory::Category::gradients);
  gradients.weight = at::empty({update ? std::min(block_, classes_) : classes_, weight.size(1)}, weight.options());
  return gradients;
}

/// Where a length is divided out, the score's share along it goes; elsewhere the margin's own share comes.
void BlockSoftmax::put_target_gradients(Gradients& gradients, Range classes, Tensor& products, Tensor& along_classes,
                                        const std::vector<double>& of_values) {
  const auto targets = targets_.in_places(classes.begin, classes.end);
  if (targets.empty()) return;
  constexpr double kLeastSquare = 1e-24;
  std::vector<double> of_products, along;
  std::vector<int64_t> places;
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto& target = targets[i];
    const double of_score = of_values[i] * target.slope, radial = of_values[i] * target.radial;
    const auto share_of = [&](bool normalised, double length) {
      return normalised ? of_score * target.score : radial / std::max(length * length, kLeastSquare);
    };
    of_products.push_back(of_score * target.factor);
    places.push_back(target.place - classes.begin);
    along.push_back(share_of(scoring_.normalise_weight, target.weight_length));
    gradients.along_rows[target.row] += share_of(scoring_.normalise_features, target.feature_length);
  }
  write_entries(products, targets, classes.begin, of_products);
  along_classes.index_add_(0, at::tensor(places, at::kLong).to(products.device()),
                           at::tensor(along, at::kDouble).to(along_classes.options()));
}

void BlockSoftmax::multiply_gradients(Gradients& gradients, const Tensor& weight, const Tensor& products,
                                      Tensor& weight_gradient) const {
  if (!is_rounded()) {
    at::mm_out(weight_gradient, products, gradients.inputs);
    gradients.features.addmm_(products.t(), weight);
    return;
  }
  weight_gradient.copy_(at::mm(products, gradients.inputs));
  gradients.features.add_(
      at::mm(products.t(), weight.to(product_type_)));  // a block's sum is rounded, the whole is not
}

/// The two GEMMs. `products`: their gradient, but for the targets'; `along_classes`: sum of score times gradient.
void BlockSoftmax::add_gradients(Gradients& gradients, const Tensor& own_weight, Range classes, Tensor& products,
                                 Tensor& along_classes, const std::vector<double>& of_values) {
  if (!scoring_.normalise_weight) along_classes.zero_();
  put_target_gradients(gradients, classes, products, along_classes, of_values);
  auto own_gradient = gradients.weight.narrow(0, gradients.update ? 0 : classes.begin, classes.size());
  multiply_gradients(gradients, own_weight, products, own_gradient);
  if (scoring_.normalise_weight) {
    const auto factors = factors_of(classes, own_weight.options());
    along_classes.mul_(factors).mul_(factors).neg_();
  }
  if (scoring_.normalise_weight || has_radial()) own_gradient.addcmul_(own_weight, along_classes.unsqueeze(1));
  if (gradients.update) gradients.update(rows_of(classes), own_gradient);
}

std::pair<Tensor, Tensor> BlockSoftmax::backward(const Tensor& features, const Tensor& weight, const Tensor& log_sum,
                                                 const Tensor& share, int64_t classes, const RowUpdate& update) {
  const auto floor = share * (scoring_.smoothing / static_cast<double>(classes));
  const Shares shares = {padded_rows(log_sum), padded_rows(share), padded_rows(floor)};
  const Shares of_others =
      log_weight_ > 0 ? Shares{padded_rows(log_sum - log_weight_), shares.share, shares.floor} : shares;
  const RowGradients rows(log_sum, share, floor);
  auto gradients = start_gradients(features, weight, update);
  make_scratch(features);
  for_each_block([&](Range range) {
    const auto own_weight = rows_of(range).of(weight);
    auto products = buffer_of(range);
    if (!is_kept(range)) multiply(own_weight, gradients.inputs, products);
    const auto targets = targets_.in_places(range.begin, range.end);
    write_entries(products, targets, range.begin, std::vector<double>(targets.size(), 0.0));
    auto along = differentiate_block(products, factors_of(range, weight.options()), filter(),
                                     log_weight_of(range) > 0 ? of_others : shares, gradients.along_samples);
    add_gradients(gradients, own_weight, range, products, along, target_gradients(range, rows));
  });
  scratch_.reset();
  kept_.reset();
  return {features_gradient(gradients, features), update ? Tensor() : spread(gradients.weight, weight)};
}

/// From the scored rows to a gradient of the whole weight.
Tensor BlockSoftmax::spread(const Tensor& gradient, const Tensor& weight) const {
  if (!ids_.defined()) return gradient;
  return at::_sparse_coo_tensor_unsafe(ids_.unsqueeze(0), gradient, weight.sizes(),
                                       gradient.options().layout(at::kSparse));
}

Tensor BlockSoftmax::whole_scores(const Tensor& features, const Tensor& weight) {
  if (scoring_.normalise_features) inverse_features_ = inverse_lengths(features);
  if (scoring_.normalise_weight) inverse_weight_ = inverse_lengths(weight);
  const Range all = {0, classes_};
  const auto factors = factors_of(all, weight.options());
  kept_ = at::empty({classes_, columns_}, features.options());
  multiply(weight, directions_of(features), kept_);
  auto scores = kept_ * factors.unsqueeze(1);
  if (scoring_.filter < 1.0) scores.masked_fill_(scores.gt(filter()), 0);
  apply_margins(target_products(features, weight, kept_, all), factors, all);
  std::vector<double> values;
  for (const auto& target : targets_.all()) values.push_back(target.value);
  write_entries(scores, targets_.all(), 0, values);
  return scores.narrow(1, 0, rows_).contiguous();
}

std::pair<Tensor, Tensor> BlockSoftmax::backward_of_scores(const Tensor& features, const Tensor& weight,
                                                           const Tensor& gradient) {
  TORCH_CHECK(kept_.defined(), "softmax loss: backward ran twice, wanted once: its buffer is used up by the first");
  const Range all = {0, classes_};
  const auto factors = factors_of(all, weight.options()).unsqueeze(1);
  const RowUpdate none;
  auto gradients = start_gradients(features, weight, none);
  auto of_scores = at::zeros_like(kept_);
  of_scores.narrow(1, 0, rows_).copy_(gradient);
  const auto of_values = read_entries(of_scores, targets_.all(), 0);
  const std::vector<double> zeros(of_values.size(), 0.0);
  write_entries(of_scores, targets_.all(), 0, zeros);
  write_entries(kept_, targets_.all(), 0, zeros);
  const auto scores = kept_ * factors;
  if (scoring_.filter < 1.0) of_scores.masked_fill_(scores.gt(filter()), 0);
  gradients.along_samples[0].copy_((of_scores * scores).sum({0}));
  auto along = (of_scores * scores).sum({1});
  auto products = of_scores.mul_(factors);
  add_gradients(gradients, weight, all, products, along, of_values);
  kept_.reset();
  return {features_gradient(gradients, features), gradients.weight};
}

/// From the gradient of what entered the products to that of the features.
Tensor BlockSoftmax::features_gradient(const Gradients& gradients, const Tensor& features) const {
  auto along = at::tensor(gradients.along_rows, at::kDouble).to(features.options());
  auto gradient = gradients.features.narrow(0, 0, rows_);
  if (!inverse_features_.defined()) {
    gradient.mul_(scoring_.scale);
    return has_radial() ? gradient.addcmul_(features, along.unsqueeze(1)) : gradient;
  }
  along.add_(gradients.along_samples.sum({0}).narrow(0, 0, rows_)).mul_(inverse_features_).mul_(inverse_features_);
  gradient.mul_((inverse_features_ * scoring_.scale).unsqueeze(1));
  return gradient.addcmul_(features, along.unsqueeze(1), -1);
}

}  // namespace tandem::classifier::detail
