#include "tandem/classifier/detail/targets.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include <algorithm>

#include "tandem/classifier/detail/on_device.h"

namespace tandem::classifier::detail {
namespace {

constexpr int64_t kNumbers = sizeof(TargetNumbers) / sizeof(double);

/// What a block leaves undefined where nobody reads it.
template <class T>
const T* numbers_or_null(const Tensor& numbers) {
  return numbers.defined() ? numbers.const_data_ptr<T>() : nullptr;
}

}  // namespace

LocalTargets::LocalTargets(const Tensor& targets, int64_t first, const Tensor& features, const Tensor& weight,
                           const Scoring& scoring, const Tensor& scored) {
  const auto ids = targets.cpu().contiguous();
  const auto* id = ids.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < ids.numel(); ++row) {
    if (id[row] != -1) ++counted_;
    if (id[row] >= first && id[row] < first + weight.size(0)) rows_.push_back(row);
  }
  std::ranges::stable_sort(rows_, {}, [&](int64_t row) { return id[row]; });
  for (const int64_t row : rows_) classes_.push_back(id[row] - first);
  place(scored);
  lay_out(features);
  if (!scoring.margin.is_none() && !rows_.empty()) measure(features, weight, scoring);
}

void LocalTargets::place(const Tensor& scored) {
  places_ = classes_;
  for (size_t i = 0; i < classes_.size(); ++i) {
    if (i == 0 || classes_[i] != classes_[i - 1]) starts_.push_back(static_cast<int64_t>(i));
  }
  starts_.push_back(static_cast<int64_t>(classes_.size()));
  if (!scored.defined()) return;
  const std::span ids(scored.const_data_ptr<int64_t>(), static_cast<size_t>(scored.numel()));
  size_t at = 0;
  for (size_t i = 0; i < classes_.size(); ++i) {
    if (at < ids.size() && ids[at] < classes_[i]) ++at;
    TORCH_CHECK_VALUE(at < ids.size() && ids[at] == classes_[i], "softmax loss: class ", classes_[i],
                      " of this rank is a target and not among the sampled ones");
    places_[i] = static_cast<int64_t>(at);
  }
}

/// On a device there is room for a target of each row: what a rank needs does not depend on the batch.
void LocalTargets::lay_out(const Tensor& features) {
  const auto device = features.device();
  line_ = (device.is_cpu() ? static_cast<int64_t>(rows_.size()) : features.size(0)) + 1;
  ids_memory_.resize(static_cast<size_t>(4 * line_));
  const std::vector<int64_t>* lines[] = {&rows_, &places_, &starts_, &classes_};
  for (int i = 0; i < 4; ++i) std::ranges::copy(*lines[i], ids_memory_.begin() + i * line_);
  numbers_memory_.assign(static_cast<size_t>(line_ * kNumbers), 1.0);
  ids_ = at::from_blob(ids_memory_.data(), {4, line_}, at::kLong);
  numbers_ = at::from_blob(numbers_memory_.data(), {line_, kNumbers}, at::kDouble);
  if (device.is_cpu()) return;
  ids_ = on_device(ids_.clone(), device);
  numbers_ = at::ones({line_, kNumbers}, at::device(device).dtype(at::kDouble));
}

/// The lengths that a margin depends on.
void LocalTargets::measure(const Tensor& features, const Tensor& weight, const Scoring& scoring) {
  const auto put = [&](double TargetNumbers::*number, const Tensor& rows, const Tensor& index) {
    numbers(number).copy_(rows.index_select(0, index).to(at::kDouble).norm(2, {1}));
  };
  if (!scoring.normalise_features) put(&TargetNumbers::feature_length, features, row_ids());
  if (!scoring.normalise_weight) put(&TargetNumbers::weight_length, weight, class_ids());
}

LocalTargets::Own LocalTargets::own_of(ClassRange classes) const {
  const auto place = [&](int64_t of) {
    return static_cast<int64_t>(std::ranges::lower_bound(places_, of) - places_.begin());
  };
  return {place(classes.begin), place(classes.end)};
}

Tensor LocalTargets::ids_on_device(int line) const {
  return ids_.select(0, line).narrow(0, 0, static_cast<int64_t>(rows_.size()));
}

TargetNumbers* LocalTargets::numbers_from(int64_t target) const {
  return reinterpret_cast<TargetNumbers*>(numbers_.mutable_data_ptr<double>()) + target;
}

Tensor LocalTargets::numbers(double TargetNumbers::*number) const {
  constexpr TargetNumbers kPlaces = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  static_assert(kNumbers == 10);
  return numbers_.select(1, static_cast<int64_t>(kPlaces.*number)).narrow(0, 0, static_cast<int64_t>(rows_.size()));
}

template <class T, class S>
kernels::TargetEntries<T, S> LocalTargets::entries(const Tensor& block, const Tensor& factors, ClassRange classes,
                                                   Own own) const {
  auto* products = block.defined() ? static_cast<S*>(block.mutable_data_ptr()) : nullptr;
  return {ids(0) + own.begin,
          ids(1) + own.begin,
          classes.begin,
          {products, numbers_or_null<T>(factors), classes.size(), block.defined() ? block.size(1) : 0}};
}

void LocalTargets::multiply(const ClassBlocks& blocks, const Tensor& features, const Tensor& weight) {
  if (rows_.empty()) return;
  const auto index = row_ids();
  auto x = features.index_select(0, index).mul_(blocks.scoring().scale);
  const auto& inverse = blocks.inverse_features();
  if (inverse.defined()) x.mul_(inverse.index_select(0, index).unsqueeze(1));
  numbers(&TargetNumbers::product).copy_(x.mul_(weight.index_select(0, class_ids())).sum({1}));
}

void LocalTargets::score(const Tensor& block, const Tensor& factors, ClassRange classes, const Scoring& scoring) {
  const auto own = own_of(classes);
  if (own.size() == 0) return;
  dispatch_block(block.defined() ? block : factors, [&]<class T, class S>(T, S) {
    for_each_on(numbers_, own.size(),
                kernels::ScoreTargetBody<T, S>{entries<T, S>(block, factors, classes, own), numbers_from(own.begin),
                                               scoring.margin, scoring.scale, !block.defined()});
  });
}

void LocalTargets::put_values(const Tensor& block, const Tensor& factors, ClassRange classes, bool leaves_out) {
  const auto own = own_of(classes);
  dispatch_block(block, [&]<class T, class S>(T, S) {
    for_each_on(
        numbers_, own.size(),
        kernels::PutTargetBody<T, S>{entries<T, S>(block, factors, classes, own), numbers_from(own.begin), leaves_out});
  });
}

void LocalTargets::clear(const Tensor& block, ClassRange classes) const {
  const auto own = own_of(classes);
  dispatch_block(block, [&]<class T, class S>(T, S) {
    for_each_on(numbers_, own.size(), kernels::ClearTargetBody<T, S>{entries<T, S>(block, {}, classes, own)});
  });
}

void LocalTargets::add_left_out(Running& rows) const {
  AT_DISPATCH_FLOATING_TYPES(rows.sum.scalar_type(), "softmax loss", [&] {
    auto* total = rows.total.defined() ? rows.total.mutable_data_ptr<scalar_t>() : nullptr;
    for_each_on(numbers_, all().size(),
                kernels::AddTargetBody<scalar_t>{
                    ids(0),
                    numbers_from(0),
                    {rows.maximum.mutable_data_ptr<scalar_t>(), rows.sum.mutable_data_ptr<scalar_t>(), total}});
  });
}

void LocalTargets::write_values(const Tensor& line) const {
  AT_DISPATCH_FLOATING_TYPES(line.scalar_type(), "softmax loss", [&] {
    for_each_on(numbers_, all().size(),
                kernels::TargetLineBody<scalar_t>{ids(0), numbers_from(0), line.mutable_data_ptr<scalar_t>()});
  });
}

void LocalTargets::differentiate(const Shares& shares, double smoothing, ClassRange classes) {
  const auto own = own_of(classes);
  AT_DISPATCH_FLOATING_TYPES(shares.share.scalar_type(), "softmax loss", [&] {
    for_each_on(numbers_, own.size(),
                kernels::TargetGradientBody<scalar_t>{ids(0) + own.begin, numbers_from(own.begin),
                                                      share_rows<scalar_t>(shares), smoothing});
  });
}

void LocalTargets::read_gradients(const Tensor& block, ClassRange classes) {
  const auto own = own_of(classes);
  dispatch_block(block, [&]<class T, class S>(T, S) {
    for_each_on(numbers_, own.size(),
                kernels::ReadTargetGradientBody<T, S>{entries<T, S>(block, {}, classes, own), numbers_from(own.begin)});
  });
}

/// Which of the classes that are targets.
LocalTargets::Own LocalTargets::starts_of(Own targets) const {
  const auto start = [&](int64_t target) {
    return static_cast<int64_t>(std::ranges::lower_bound(starts_, target) - starts_.begin());
  };
  return {start(targets.begin), start(targets.end)};
}

void LocalTargets::put_gradients(const Tensor& block, const Scoring& scoring, ClassRange classes,
                                 const Tensor& along_classes, const Tensor& along_rows) {
  const auto starts = starts_of(own_of(classes));
  dispatch_block(block, [&]<class T, class S>(T, S) {
    for_each_on(numbers_, starts.size(),
                kernels::PutTargetGradientBody<T, S>{entries<T, S>(block, {}, classes, all()), numbers_from(0),
                                                     ids(2) + starts.begin, scoring.normalise_features,
                                                     scoring.normalise_weight, along_classes.mutable_data_ptr<T>(),
                                                     along_rows.mutable_data_ptr<double>()});
  });
}

void LocalTargets::add_along(const Scoring& scoring, ClassRange classes, const Tensor& along_classes,
                             const Tensor& along_rows) {
  const auto starts = starts_of(own_of(classes));
  auto* rows = scoring.normalise_features ? nullptr : along_rows.mutable_data_ptr<double>();
  dispatch_block(along_classes, [&]<class T, class S>(T, S) {
    for_each_on(numbers_, starts.size(),
                kernels::PutTargetGradientBody<T, S>{
                    entries<T, S>({}, {}, classes, all()), numbers_from(0), ids(2) + starts.begin,
                    scoring.normalise_features, scoring.normalise_weight, along_classes.mutable_data_ptr<T>(), rows});
  });
}

void LocalTargets::add_to_features(const Tensor& weight, ClassRange classes, const Tensor& of_inputs) const {
  const auto own = own_of(classes);
  const int64_t dim = weight.size(1);
  AT_DISPATCH_FLOATING_TYPES(weight.scalar_type(), "softmax loss", [&] {
    const int64_t packs = kernels::packs_of(dim, kernels::AddToFeaturesBody<scalar_t>::kNumbers);
    for_each_on(numbers_, own.size() * packs,
                kernels::AddToFeaturesBody<scalar_t>{ids(0) + own.begin, ids(1) + own.begin, classes.begin,
                                                     numbers_from(own.begin), weight.const_data_ptr<scalar_t>(), dim,
                                                     packs, of_inputs.mutable_data_ptr<scalar_t>()});
  });
}

void LocalTargets::add_to_weight(const Tensor& inputs, ClassRange classes, const Tensor& of_weight) const {
  const auto starts = starts_of(own_of(classes));
  const int64_t dim = inputs.size(1);
  dispatch_block(inputs, [&]<class T, class S>(T, S) {
    const int64_t packs = kernels::packs_of(dim, kernels::AddToWeightBody<T, S>::kNumbers);
    for_each_on(numbers_, starts.size() * packs,
                kernels::AddToWeightBody<T, S>{ids(0), ids(1), ids(2) + starts.begin, classes.begin, numbers_from(0),
                                               static_cast<const S*>(inputs.const_data_ptr()), dim, packs,
                                               of_weight.mutable_data_ptr<T>()});
  });
}

}  // namespace tandem::classifier::detail
