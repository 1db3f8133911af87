#include "tandem/classifier/detail/targets.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include <algorithm>

namespace tandem::classifier::detail {
namespace {

std::vector<double> lengths_of(const Tensor& rows, const std::vector<int64_t>& ids) {
  const auto index = at::tensor(ids, at::kLong).to(rows.device());
  const auto lengths = rows.index_select(0, index).to(at::kDouble).norm(2, {1}).cpu();
  return {lengths.const_data_ptr<double>(), lengths.const_data_ptr<double>() + lengths.numel()};
}

/// Classes and rows of the entries, to index a block with.
c10::List<std::optional<Tensor>> index_of(const Tensor& block, std::span<const Target> targets, int64_t first_class) {
  std::vector<int64_t> classes, rows;
  for (const auto& target : targets) {
    classes.push_back(target.target_class - first_class);
    rows.push_back(target.row);
  }
  const auto put = [&](const std::vector<int64_t>& ids) { return at::tensor(ids, at::kLong).to(block.device()); };
  return {std::optional(put(classes)), std::optional(put(rows))};
}

}  // namespace

LocalTargets::LocalTargets(const Tensor& targets, int64_t first, const Tensor& features, const Tensor& weight,
                           const Scoring& scoring) {
  TORCH_CHECK_TYPE(targets.scalar_type() == at::kLong, "softmax loss: targets are ", targets.scalar_type(),
                   ", wanted int64");
  const auto ids = targets.cpu().contiguous();
  const auto* id = ids.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < ids.numel(); ++row) {
    if (id[row] != -1) ++counted_;
    if (id[row] >= first && id[row] < first + weight.size(0)) targets_.push_back({row, id[row] - first});
  }
  std::ranges::stable_sort(targets_, {}, &Target::target_class);
  if (scoring.margin.is_none() || targets_.empty()) return;  // lengths do not matter
  std::vector<int64_t> rows, classes;
  for (const auto& target : targets_) {
    rows.push_back(target.row);
    classes.push_back(target.target_class);
  }
  const auto of_features = scoring.normalise_features ? std::vector<double>() : lengths_of(features, rows);
  const auto of_weight = scoring.normalise_weight ? std::vector<double>() : lengths_of(weight, classes);
  for (size_t i = 0; i < targets_.size(); ++i) {
    if (!of_features.empty()) targets_[i].feature_length = of_features[i];
    if (!of_weight.empty()) targets_[i].weight_length = of_weight[i];
  }
}

std::span<Target> LocalTargets::in_classes(int64_t begin, int64_t end) {
  const auto from = std::ranges::lower_bound(targets_, begin, {}, &Target::target_class);
  const auto to = std::ranges::lower_bound(targets_, end, {}, &Target::target_class);
  return {from, to};
}

void apply_margin(Target& target, double score, const Scoring& scoring) {
  target.score = target.value = score;
  if (scoring.margin.is_none()) return;
  const double size = scoring.scale * target.feature_length * target.weight_length;
  const double cosine = size > 0 ? score / size : 0.0;
  const auto [value, slope] = classifier::apply_margin(scoring.margin, cosine);
  target.value = size * value;
  target.slope = slope;
  target.radial = size * (value - slope * cosine);
}

double read_number(const Tensor& numbers, int64_t place) {
  if (!numbers.is_cpu()) return numbers[place].item().toDouble();
  return AT_DISPATCH_FLOATING_TYPES(numbers.scalar_type(), "softmax loss",
                                    [&] { return static_cast<double>(numbers.const_data_ptr<scalar_t>()[place]); });
}

std::vector<double> read_entries(const Tensor& block, std::span<const Target> targets, int64_t first_class) {
  std::vector<double> values;
  if (targets.empty()) return values;
  if (!block.is_cpu()) {
    const auto found = block.index(index_of(block, targets, first_class)).to(at::kDouble).cpu();
    return {found.const_data_ptr<double>(), found.const_data_ptr<double>() + found.numel()};
  }
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, block.scalar_type(), "softmax loss", [&] {
    const auto* at = block.const_data_ptr<scalar_t>();
    for (const auto& target : targets) {
      values.push_back(at[(target.target_class - first_class) * block.size(1) + target.row]);
    }
  });
  return values;
}

void write_entries(Tensor& block, std::span<const Target> targets, int64_t first_class,
                   const std::vector<double>& values) {
  if (targets.empty()) return;
  if (!block.is_cpu()) {
    block.index_put_(index_of(block, targets, first_class), at::tensor(values, at::kDouble).to(block.options()));
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, block.scalar_type(), "softmax loss", [&] {
    auto* at = block.mutable_data_ptr<scalar_t>();
    for (size_t i = 0; i < targets.size(); ++i) {
      at[(targets[i].target_class - first_class) * block.size(1) + targets[i].row] = static_cast<scalar_t>(values[i]);
    }
  });
}

}  // namespace tandem::classifier::detail
