#include "tandem/memory/recompute_plan.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

#include "tandem/memory/keep_ways.h"

namespace tandem::memory {
namespace {

PlanNode kept(int block) { return {.first = block, .last = block}; }

RecomputePlan keep_from(int first, int last) {
  RecomputePlan plan;
  for (int i = first; i <= last; ++i) plan.push_back(kept(i));
  return plan;
}

/// The same for blocks that are further back.
PlanNode moved(PlanNode node, int by) {
  node.first += by;
  node.last += by;
  for (auto& inner : node.inner) inner = moved(std::move(inner), by);
  return node;
}

int64_t kept_bytes(const Stage& stage) { return stage.keeps.at(0).bytes + stage.output; }

/// The first blocks of the segments. A cut is after the block with which the sum reaches its share of the whole.
std::vector<int> sqrt_cuts(const std::vector<Stage>& stages) {
  const auto segments = std::llround(std::sqrt(stages.size()));
  double all = 0, sum = 0;
  for (const auto& stage : stages) all += static_cast<double>(kept_bytes(stage));
  std::vector<int> cuts = {0};
  for (size_t i = 0; i + 1 < stages.size(); ++i) {
    sum += static_cast<double>(kept_bytes(stages[i]));
    const auto share = static_cast<int64_t>(cuts.size());
    if (share < segments && sum * segments >= all * share) cuts.push_back(static_cast<int>(i) + 1);
  }
  return cuts;
}

RecomputePlan halves(int first, int last) {
  if (first == last) return {kept(first)};
  const int middle = (first + last - 1) / 2;
  RecomputePlan plan = {{.first = first, .last = middle, .inner = halves(first, middle)}};
  for (auto& node : halves(middle + 1, last)) plan.push_back(std::move(node));
  return plan;
}

std::string text_of_way(int keep) {
  const auto& ways = keep_ways();
  const auto row = static_cast<size_t>(keep) - 1;
  return row < ways.size() ? std::string(ways[row].name) : std::to_string(keep);
}

void append(const RecomputePlan& plan, std::string& text) {
  for (size_t i = 0; i < plan.size(); ++i) {
    if (!text.empty() && text.back() != '(') text += ' ';
    if (!plan[i].inner.empty()) {
      text += '(';
      append(plan[i].inner, text);
      text += ')';
      continue;
    }
    size_t end = i;
    while (end + 1 < plan.size() && plan[end + 1].inner.empty() && plan[end + 1].keep == plan[i].keep) ++end;
    text += std::to_string(plan[i].first);
    if (end > i) text += "-" + std::to_string(plan[end].last);
    if (plan[i].keep > 0) text += ":" + text_of_way(plan[i].keep);
    i = end;
  }
}

/// plan = part {" " part};  part = "(" plan ")" | number ["-" number] [":" (name | number)]
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  RecomputePlan all() {
    auto plan = parts();
    if (at_ < text_.size()) fail("the end");
    return plan;
  }

 private:
  RecomputePlan parts() {
    RecomputePlan plan;
    do {
      part(plan);
    } while (take(' '));
    return plan;
  }

  void part(RecomputePlan& plan) {
    if (take('(')) {
      auto inner = parts();
      if (!take(')')) fail("')'");
      const int first = inner.front().first, last = inner.back().last;
      plan.push_back({.first = first, .last = last, .inner = std::move(inner)});
      return;
    }
    const int first = number();
    const int last = take('-') ? number() : first;
    const int keep = take(':') ? way() : 0;
    for (int i = first; i <= last; ++i) plan.push_back({.first = i, .last = i, .keep = keep});
    if (last < first) fail("ascending blocks");
  }

  int way() {
    const auto& ways = keep_ways();
    for (size_t row = 0; row < ways.size(); ++row) {
      if (!text_.substr(at_).starts_with(ways[row].name)) continue;
      at_ += ways[row].name.size();
      return static_cast<int>(row) + 1;
    }
    return number();
  }

  int number() {
    int value = 0;
    const size_t begin = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && at_ < begin + 6; ++at_) {
      value = value * 10 + (text_[at_] - '0');
    }
    if (at_ == begin) fail("a number");
    return value;
  }

  bool take(char wanted) {
    const bool found = at_ < text_.size() && text_[at_] == wanted;
    at_ += found ? 1 : 0;
    return found;
  }

  [[noreturn]] void fail(const char* wanted) const {
    TORCH_CHECK_VALUE(false, "plan[", at_, "] is '", text_.substr(at_, 12), "', wanted ", wanted,
                      ", as in \"0-2 (3 (4-5)) 6:bf16\"");
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::string to_text(const RecomputePlan& plan) {
  std::string text;
  append(plan, text);
  return text;
}

RecomputePlan in_parts(const RecomputePlan& plan, const std::vector<Stage>& stages) {
  std::vector<int> begins = {0};
  for (const auto& stage : stages) begins.push_back(begins.back() + stage.parts);
  RecomputePlan cut;
  for (const auto& node : plan) {
    const int first = begins.at(node.first), last = begins.at(node.last + 1) - 1;
    if (!node.inner.empty()) {
      cut.push_back({.first = first, .last = last, .inner = in_parts(node.inner, stages)});
      continue;
    }
    for (int part = first; part <= last; ++part) cut.push_back({.first = part, .last = part, .keep = node.keep});
  }
  return cut;
}

RecomputePlan parse_plan(std::string_view text) { return Parser(text).all(); }

RecomputePlan plan_none(const std::vector<Stage>& stages) { return keep_from(0, static_cast<int>(stages.size()) - 1); }

RecomputePlan plan_sqrt(const std::vector<Stage>& stages) {
  if (stages.empty()) return {};
  const auto cuts = sqrt_cuts(stages);
  RecomputePlan plan;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    plan.push_back({.first = cuts[i], .last = cuts[i + 1] - 1, .inner = keep_from(cuts[i], cuts[i + 1] - 1)});
  }
  for (auto& node : keep_from(cuts.back(), static_cast<int>(stages.size()) - 1)) plan.push_back(std::move(node));
  return plan;
}

RecomputePlan plan_all(const std::vector<Stage>& stages) {
  const int last = static_cast<int>(stages.size()) - 1;
  return stages.empty() ? RecomputePlan() : RecomputePlan{{.first = 0, .last = last, .inner = keep_from(0, last)}};
}

RecomputePlan plan_by(const PlanMethod& method, const std::vector<Stage>& stages, int64_t budget, bool ends_with_loss) {
  if (!method.keeps_loss || !ends_with_loss) return method.plan(stages, budget);
  const std::vector<Stage> before(stages.begin(), stages.end() - 1);
  return joined(method.plan(before, budget), {kept(0)});
}

RecomputePlan joined(RecomputePlan plan, const RecomputePlan& next) {
  const int blocks = plan.empty() ? 0 : plan.back().last + 1;
  for (const auto& node : next) plan.push_back(moved(node, blocks));
  return plan;
}

RecomputePlan part_of(const RecomputePlan& plan, int first, int count) {
  RecomputePlan part;
  for (const auto& node : plan) {
    if (node.first >= first && node.last < first + count) part.push_back(moved(node, -first));
  }
  return part;
}

RecomputePlan plan_log(const std::vector<Stage>& stages) {
  return stages.empty() ? RecomputePlan() : halves(0, static_cast<int>(stages.size()) - 1);
}

}  // namespace tandem::memory
