#include "tandem/evaluation/confusion.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <span>

namespace tandem::evaluation {
namespace {

std::span<const int64_t> numbers_of(const Tensor& tensor, const char* name, int64_t count) {
  TORCH_CHECK_VALUE(tensor.dim() == 1 && tensor.numel() == count && tensor.scalar_type() == at::kLong,
                    "confusion: ", name, " is ", tensor.sizes(), " ", tensor.scalar_type(), ", wanted [", count,
                    "] of int64");
  return {tensor.const_data_ptr<int64_t>(), static_cast<size_t>(count)};
}

void check_range(std::span<const int64_t> numbers, const char* name, int64_t classes) {
  for (const int64_t number : numbers) {
    TORCH_CHECK_VALUE(number >= 0 && number < classes, "confusion: one of ", name, " is ", number, ", wanted 0..",
                      classes - 1);
  }
}

}  // namespace

Confusion confusion_of(const Tensor& labels, const Tensor& answers, int64_t num_classes, int64_t largest) {
  const auto own_labels = labels.contiguous(), own_answers = answers.contiguous();
  const auto label = numbers_of(own_labels, "labels", labels.numel());
  const auto answer = numbers_of(own_answers, "answers", labels.numel());
  check_range(label, "labels", num_classes);
  check_range(answer, "answers", num_classes);
  Confusion confusion;
  std::map<int64_t, ClassCount> counts;
  std::map<std::pair<int64_t, int64_t>, int64_t> wrong;
  for (size_t i = 0; i < label.size(); ++i) {
    auto& one = counts[label[i]];
    ++one.count;
    label[i] == answer[i] ? ++one.right : ++wrong[{label[i], answer[i]}];
  }
  for (const auto& [of, one] : counts) confusion.classes.push_back({of, one.right, one.count});
  for (const auto& [pair, count] : wrong) confusion.pairs.push_back({pair.first, pair.second, count});
  std::ranges::stable_sort(confusion.pairs, std::greater(), &Confused::count);
  if (num_classes > largest) return confusion;
  confusion.matrix = at::zeros({num_classes, num_classes}, at::kLong);
  auto* cells = confusion.matrix.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < label.size(); ++i) ++cells[label[i] * num_classes + answer[i]];
  return confusion;
}

std::vector<int64_t> worst_of(const Tensor& labels, const Tensor& answers, const Tensor& scores, int64_t most) {
  const auto wrong = labels.ne(answers).nonzero().flatten().contiguous();
  const auto of_wrong = scores.index_select(0, wrong).to(at::kDouble).contiguous();
  const auto* score = of_wrong.const_data_ptr<double>();
  std::vector<int64_t> order(static_cast<size_t>(wrong.numel()));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return score[a] > score[b]; });
  if (static_cast<int64_t>(order.size()) > most) order.resize(static_cast<size_t>(most));
  const auto* place = wrong.const_data_ptr<int64_t>();
  for (auto& one : order) one = place[one];
  return order;
}

}  // namespace tandem::evaluation
