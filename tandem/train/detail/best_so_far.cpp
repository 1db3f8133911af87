#include "tandem/train/detail/best_so_far.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/suggest.h"
#include "tandem/train/checkpoint_store.h"

namespace tandem::train::detail {
namespace {

constexpr const char *kMetric = "best_metric", *kValue = "best_value";

const Score& score_of(const Scores& scores, const std::string& metric) {
  const auto found = std::ranges::find(scores.list, metric, &Score::name);
  if (found != scores.list.end()) return *found;
  std::vector<std::string> names;
  for (const auto& score : scores.list) names.push_back(score.name);
  throw SettingsError("best is '" + metric + "', wanted " + one_of(names) + ", which the tests measure");
}

bool is_better(const Score& score, double other) {
  return score.better == Better::higher ? score.value > other : score.value < other;
}

}  // namespace

void BestSoFar::judge(int64_t step, const Scores& scores) {
  found_.reset();
  if (metric_.empty()) return;
  const auto& score = score_of(scores, metric_);
  if (kept_ && (kept_->step == step || !is_better(score, kept_->value))) return;
  found_ = BestTest{metric_, score.value, step};
}

storage::Fields BestSoFar::numbers(int64_t step) const {
  const auto& best = up_to(step);
  if (!best) return {};
  return {{kMetric, best->metric}, {kValue, best->value}, {kBestStep, best->step}};
}

bool BestSoFar::saved(int64_t step) {
  if (!awaits_save(step)) return false;
  kept_ = std::exchange(found_, std::nullopt);
  return true;
}

void BestSoFar::resume(const storage::Fields& numbers) {
  kept_.reset();
  found_.reset();
  if (storage::find_value(numbers, kMetric) == nullptr || storage::text(numbers, kMetric) != metric_) return;
  kept_ = BestTest{metric_, storage::number(numbers, kValue), storage::whole_number(numbers, kBestStep)};
}

}  // namespace tandem::train::detail
