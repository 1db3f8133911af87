#include "tandem/parallel/detail/gradient_arrivals.h"

#include <algorithm>
#include <cstring>

#include "tandem/comm/collectives.h"
#include "tandem/memory/meter.h"

namespace tandem::parallel::detail {
namespace {

constexpr size_t kNamed = 5;

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

/// "parameter a of the model has", "parameters a, b and 7 more of the model have".
std::string subject_of(std::vector<std::string> names) {
  if (names.size() == 1) return "parameter " + names[0] + " of the model has";
  const size_t more = names.size() > kNamed ? names.size() - kNamed : 0;
  names.resize(names.size() - more);
  return "parameters " + joined(names) + (more > 0 ? " and " + std::to_string(more) + " more" : "") +
         " of the model have";
}

/// " on rank 1 of 4"; "" in a group of one.
std::string place_of(const std::vector<std::string>& ranks, int size) {
  if (size == 1) return "";
  if (static_cast<int>(ranks.size()) == size) return " on any of " + std::to_string(size) + " ranks";
  return (ranks.size() == 1 ? " on rank " : " on ranks ") + joined(ranks) + " of " + std::to_string(size);
}

}  // namespace

GradientArrivals::GradientArrivals(std::vector<Tensor> parameters, std::vector<std::string> names)
    : parameters_(std::move(parameters)), names_(std::move(names)), record_(std::make_shared<Record>()) {
  const auto count = parameters_.size();
  *record_ = {std::vector<uint8_t>(count, 0), std::vector<uint8_t>(count, 0), std::vector<uint8_t>(count, 0), ""};
  for (size_t i = 0; i < count; ++i) {
    hooks_.push_back(parameters_[i].register_hook([record = record_, i, name = names_[i]](const Tensor& gradient) {
      record->came[i] = 1;
      if (!gradient.defined()) return;
      TORCH_CHECK_VALUE(record->refused[i] == 0, "parameter ", name, " of the model has a gradient", record->place,
                        ", wanted none, as in the first step: leave static_graph out");
      record->used[i] = 1;
      memory::tag(gradient, Category::gradients);  // it was made by an operator like any other
    }));
  }
}

GradientArrivals::~GradientArrivals() {
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].remove_hook(hooks_[i]);
}

void GradientArrivals::begin_step() {
  std::ranges::fill(record_->used, uint8_t{0});
  begin_backward();
}

void GradientArrivals::begin_backward() { std::ranges::fill(record_->came, uint8_t{0}); }

void GradientArrivals::excuse(const std::vector<size_t>& parameters) {
  for (const auto i : parameters) record_->came[i] = 1;
}

void GradientArrivals::excuse_all() { std::ranges::fill(record_->came, uint8_t{1}); }

void GradientArrivals::excuse_used() { record_->came = record_->used; }

bool GradientArrivals::are_complete() const {
  return std::ranges::all_of(record_->came, [](uint8_t came) { return came == 1; });
}

std::vector<Tensor> GradientArrivals::missing() const {
  std::vector<Tensor> missing;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (record_->came[i] == 0) missing.push_back(parameters_[i]);
  }
  return missing;
}

void GradientArrivals::refuse(const std::vector<size_t>& parameters, const std::string& place) {
  for (const auto i : parameters) record_->refused[i] = 1;
  record_->place = place;
}

void GradientArrivals::check(comm::ProcessGroup& group, std::string_view remedy) const {
  const at::NoGradGuard no_grad;
  const auto count = static_cast<int64_t>(record_->came.size());
  const auto own = at::empty({count}, at::kByte);
  if (count > 0) std::memcpy(own.data_ptr(), record_->came.data(), record_->came.size());
  const auto all = comm::all_gather(own, group, 0, std::vector<int64_t>(group.size(), count));
  const auto* came = all.const_data_ptr<uint8_t>();
  std::vector<std::string> names, ranks;
  for (int64_t i = 0; i < count; ++i) {
    bool everywhere = true;
    for (int rank = 0; rank < group.size(); ++rank) everywhere &= came[rank * count + i] == 1;
    if (!everywhere) names.push_back(names_[i]);
  }
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto* first = came + rank * count;
    if (std::any_of(first, first + count, [](uint8_t one) { return one == 0; })) ranks.push_back(std::to_string(rank));
  }
  TORCH_CHECK_VALUE(names.empty(), subject_of(names), " no gradient after backward", place_of(ranks, group.size()),
                    ", wanted one: use it in the loss of every step, ", remedy,
                    "or freeze it with requires_grad_(false) before training");
}

}  // namespace tandem::parallel::detail
