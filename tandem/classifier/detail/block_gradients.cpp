#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tandem/classifier/detail/block_softmax.h"
#include "tandem/memory/meter.h"

namespace tandem::classifier::detail {

/// The same numbers as Shares holds, for the targets.
class BlockSoftmax::RowGradients {
 public:
  RowGradients(const Tensor& log_sum, const Tensor& share, const Tensor& floor)
      : log_sum_(numbers_of(log_sum)), share_(numbers_of(share)), floor_(numbers_of(floor)) {}
  std::array<double, 3> at(int64_t row) const { return {log_sum_[row], share_[row], floor_[row]}; }

 private:
  std::vector<double> log_sum_, share_, floor_;
};

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
  gradients.features = at::zeros({num_lanes_, columns_, features.size(1)}, features.options());
  gradients.along_samples = at::zeros({num_lanes_, columns_}, features.options());
  gradients.along_rows.assign(rows_, 0.0);
  const memory::Scope scope(memory::Category::gradients);
  gradients.weight = at::empty({update ? num_lanes_ * block_ : classes_, weight.size(1)}, weight.options());
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

void BlockSoftmax::multiply_gradients(const Gradients& gradients, int64_t lane, OwnRows own, const Tensor& products,
                                      const Tensor& along_classes, Tensor& weight_gradient) const {
  auto of_features = gradients.features.select(0, lane);
  const bool adds_along = scoring_.normalise_weight || has_radial();
  if (!is_rounded()) {
    of_features.addmm_(products.t(), own.exact);
    at::mm_out(weight_gradient, products, gradients.inputs);
    if (adds_along) add_along(weight_gradient, own.exact, along_classes, weight_gradient);
    return;
  }
  add_rounded(at::mm(products.t(), own.entering), of_features);  // a block's sum is rounded, the whole is not
  at::mm_out(own.entering, products, gradients.inputs);          // nobody reads the rows any more
  if (adds_along) {
    add_along(own.entering, own.exact, along_classes, weight_gradient);
  } else {
    weight_gradient.copy_(own.entering);
  }
}

/// The two GEMMs. `products`: their gradient, but for the targets'; `along_classes`: sum of score times gradient.
void BlockSoftmax::add_gradients(Gradients& gradients, int64_t lane, const OwnRows& own, Range classes,
                                 Tensor& products, Tensor& along_classes, const std::vector<double>& of_values) {
  if (!scoring_.normalise_weight) along_classes.zero_();
  put_target_gradients(gradients, classes, products, along_classes, of_values);
  if (scoring_.normalise_weight) {
    const auto factors = factors_of(classes, along_classes.options());
    along_classes.mul_(factors).mul_(factors).neg_();
  }
  auto own_gradient = gradients.weight.narrow(0, gradients.update ? lane * block_ : classes.begin, classes.size());
  multiply_gradients(gradients, lane, own, products, along_classes, own_gradient);
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
  for_each_block(features, [&](const Lane& lane, Range range) {
    const auto own_weight = rows_of(range).of(weight);
    const OwnRows own = {own_weight, entering(own_weight, lane)};
    auto products = buffer_of(lane, range);
    if (!is_kept(range)) at::mm_out(products, own.entering, gradients.inputs.t());
    const auto targets = targets_.in_places(range.begin, range.end);
    write_entries(products, targets, range.begin, std::vector<double>(targets.size(), 0.0));
    auto along =
        differentiate_block(products, factors_of(range, weight.options()), filter(),
                            log_weight_of(range) > 0 ? of_others : shares, gradients.along_samples[lane.index]);
    add_gradients(gradients, lane.index, own, range, products, along, target_gradients(range, rows));
  });
  kept_.reset();
  return {features_gradient(gradients, features), update ? Tensor() : spread(gradients.weight, weight)};
}

/// From the scored rows to a gradient of the whole weight.
Tensor BlockSoftmax::spread(const Tensor& gradient, const Tensor& weight) const {
  if (!ids_.defined()) return gradient;
  return at::_sparse_coo_tensor_unsafe(ids_.unsqueeze(0), gradient, weight.sizes(),
                                       gradient.options().layout(at::kSparse));
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
  add_gradients(gradients, 0, {weight, weight}, all, products, along, of_values);
  kept_.reset();
  return {features_gradient(gradients, features), gradients.weight};
}

/// From the gradient of what entered the products to that of the features.
Tensor BlockSoftmax::features_gradient(const Gradients& gradients, const Tensor& features) const {
  auto along = at::tensor(gradients.along_rows, at::kDouble).to(features.options());
  auto sum = gradients.features[0];
  for (int lane = 1; lane < num_lanes_; ++lane) sum.add_(gradients.features[lane]);
  auto gradient = sum.narrow(0, 0, rows_);
  if (!inverse_features_.defined()) {
    gradient.mul_(scoring_.scale);
    return has_radial() ? gradient.addcmul_(features, along.unsqueeze(1)) : gradient;
  }
  along.add_(gradients.along_samples.sum({0}).narrow(0, 0, rows_)).mul_(inverse_features_).mul_(inverse_features_);
  gradient.mul_((inverse_features_ * scoring_.scale).unsqueeze(1));
  return gradient.addcmul_(features, along.unsqueeze(1), -1);
}

}  // namespace tandem::classifier::detail
