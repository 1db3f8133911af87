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

/// Places and rows of the entries, to index a block with.
c10::List<std::optional<Tensor>> index_of(const Tensor& block, std::span<const Target> targets, int64_t first_place) {
  std::vector<int64_t> places, rows;
  for (const auto& target : targets) {
    places.push_back(target.place - first_place);
    rows.push_back(target.row);
  }
  const auto put = [&](const std::vector<int64_t>& ids) { return at::tensor(ids, at::kLong).to(block.device()); };
  return {std::optional(put(places)), std::optional(put(rows))};
}

}  // namespace

LocalTargets::LocalTargets(const Tensor& targets, int64_t first, const Tensor& features, const Tensor& weight,
                           const Scoring& scoring, const Tensor& scored) {
  TORCH_CHECK_TYPE(targets.scalar_type() == at::kLong, "softmax loss: targets are ", targets.scalar_type(),
                   ", wanted int64");
  const auto ids = targets.cpu().contiguous();
  const auto* id = ids.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < ids.numel(); ++row) {
    if (id[row] != -1) ++counted_;
    if (id[row] >= first && id[row] < first + weight.size(0)) targets_.push_back({row, id[row] - first});
  }
  std::ranges::stable_sort(targets_, {}, &Target::target_class);
  place(scored);
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

void LocalTargets::place(const Tensor& scored) {
  if (!scored.defined()) {
    for (auto& target : targets_) target.place = target.target_class;
    return;
  }
  const auto ids = scored.cpu();
  const std::span places(ids.const_data_ptr<int64_t>(), static_cast<size_t>(ids.numel()));
  size_t at = 0;
  for (auto& target : targets_) {
    if (at < places.size() && places[at] < target.target_class) ++at;
    TORCH_CHECK_VALUE(at < places.size() && places[at] == target.target_class, "softmax loss: class ",
                      target.target_class, " of this rank is a target and not among the sampled ones");
    target.place = static_cast<int64_t>(at);
  }
}

std::span<Target> LocalTargets::in_places(int64_t begin, int64_t end) {
  const auto from = std::ranges::lower_bound(targets_, begin, {}, &Target::place);
  const auto to = std::ranges::lower_bound(targets_, end, {}, &Target::place);
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

std::vector<double> numbers_of(const Tensor& x) {
  const auto numbers = x.to(at::kDouble).cpu().contiguous();
  return {numbers.const_data_ptr<double>(), numbers.const_data_ptr<double>() + numbers.numel()};
}

Tensor numbers_at(const Tensor& numbers, std::span<const Target> targets, int64_t first_place) {
  std::vector<int64_t> places;
  for (const auto& target : targets) places.push_back(target.place - first_place);
  return numbers.index_select(0, at::tensor(places, at::kLong).to(numbers.device())).to(at::kDouble);
}

Tensor entries_at(const Tensor& block, std::span<const Target> targets, int64_t first_place) {
  return block.index(index_of(block, targets, first_place)).to(at::kDouble);
}

std::vector<double> read_numbers(const Tensor& numbers, std::span<const Target> targets, int64_t first_place) {
  std::vector<double> values;
  if (targets.empty()) return values;
  if (!numbers.is_cpu()) return numbers_of(numbers_at(numbers, targets, first_place));
  AT_DISPATCH_FLOATING_TYPES(numbers.scalar_type(), "softmax loss", [&] {
    const auto* at = numbers.const_data_ptr<scalar_t>();
    for (const auto& target : targets) values.push_back(at[target.place - first_place]);
  });
  return values;
}

std::vector<double> read_entries(const Tensor& block, std::span<const Target> targets, int64_t first_place) {
  std::vector<double> values;
  if (targets.empty()) return values;
  if (!block.is_cpu()) return numbers_of(entries_at(block, targets, first_place));
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, block.scalar_type(), "softmax loss", [&] {
    const auto* at = block.const_data_ptr<scalar_t>();
    for (const auto& target : targets) {
      values.push_back(at[(target.place - first_place) * block.size(1) + target.row]);
    }
  });
  return values;
}

void add_numbers(Tensor& numbers, const std::vector<int64_t>& places, const std::vector<double>& values) {
  if (!numbers.is_cpu()) {
    numbers.index_add_(0, at::tensor(places, at::kLong).to(numbers.device()),
                       at::tensor(values, at::kDouble).to(numbers.options()));
    return;
  }
  AT_DISPATCH_FLOATING_TYPES(numbers.scalar_type(), "softmax loss", [&] {
    auto* at = numbers.mutable_data_ptr<scalar_t>();
    for (size_t i = 0; i < places.size(); ++i) at[places[i]] += static_cast<scalar_t>(values[i]);
  });
}

void write_entries(Tensor& block, std::span<const Target> targets, int64_t first_place,
                   const std::vector<double>& values) {
  if (targets.empty()) return;
  if (!block.is_cpu()) {
    block.index_put_(index_of(block, targets, first_place), at::tensor(values, at::kDouble).to(block.options()));
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, block.scalar_type(), "softmax loss", [&] {
    auto* at = block.mutable_data_ptr<scalar_t>();
    for (size_t i = 0; i < targets.size(); ++i) {
      at[(targets[i].place - first_place) * block.size(1) + targets[i].row] = static_cast<scalar_t>(values[i]);
    }
  });
}

}  // namespace tandem::classifier::detail
