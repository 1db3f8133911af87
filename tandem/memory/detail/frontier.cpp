#include "tandem/memory/detail/frontier.h"

#include <algorithm>

namespace tandem::memory::detail {

int64_t time_within(const Frontier& frontier, int64_t bytes) {
  const auto after = std::ranges::upper_bound(frontier, bytes, {}, &Tradeoff::bytes);
  return after == frontier.begin() ? kNever : std::prev(after)->nanoseconds;
}

int Raised::at(int64_t bytes, int from, int to) const {
  const auto begin = frontier.begin();
  const auto after = std::ranges::upper_bound(begin + from, begin + (to + 1), bytes - above, {}, &Tradeoff::bytes);
  return static_cast<int>(after - begin) - 1;
}

void FrontierBuilder::add(const Turns& turns) {
  const auto& [least, nanoseconds, one, two] = turns;
  if (one.frontier.empty() || two.frontier.empty()) return;
  const Raised best{best_, 0};
  const int64_t begin = std::max({least, one.bytes(0), two.bytes(0)});
  improve(turns, {.begin = begin,
                  .one = one.at(begin, 0, one.last()),
                  .one_end = one.last(),
                  .two = two.at(begin, 0, two.last()),
                  .two_end = two.last(),
                  .best = best.at(begin, 0, best.last()),
                  .best_end = best.last()});
  if (!found_.empty()) merge();
}

void FrontierBuilder::improve(const Turns& turns, const Stretch& stretch) {
  const auto& [begin, one, one_end, two, two_end, best, best_end] = stretch;
  // The shortest time of the turns in this stretch against the longest of the best.
  if (best >= 0 && best_[best].nanoseconds <= turns.time(one_end, two_end)) return;
  const int ones = one_end - one, twos = two_end - two;
  if (ones + twos <= 4) return list(turns, stretch);
  const auto& longer = ones >= twos ? turns.one : turns.two;
  const int64_t middle = longer.bytes(ones >= twos ? (one + one_end + 1) / 2 : (two + two_end + 1) / 2);
  const Raised so_far{best_, 0};
  const int first = std::max(best, 0);
  Stretch low = stretch, high = stretch;
  low.one_end = turns.one.at(middle - 1, one, one_end);
  low.two_end = turns.two.at(middle - 1, two, two_end);
  low.best_end = so_far.at(middle - 1, first, best_end);
  high.begin = middle;
  high.one = turns.one.at(middle, one, one_end);
  high.two = turns.two.at(middle, two, two_end);
  high.best = so_far.at(middle, first, best_end);
  improve(turns, low);
  improve(turns, high);
}

void FrontierBuilder::list(const Turns& turns, const Stretch& stretch) {
  int one = stretch.one, two = stretch.two;
  int64_t bytes = stretch.begin;
  while (bytes != kNever) {
    while (one < stretch.one_end && turns.one.bytes(one + 1) <= bytes) ++one;
    while (two < stretch.two_end && turns.two.bytes(two + 1) <= bytes) ++two;
    found_.push_back({bytes, turns.time(one, two)});
    bytes = std::min(one < stretch.one_end ? turns.one.bytes(one + 1) : kNever,
                     two < stretch.two_end ? turns.two.bytes(two + 1) : kNever);
  }
}

void FrontierBuilder::merge() {
  merged_.clear();
  size_t old = 0, fresh = 0;
  while (old < best_.size() || fresh < found_.size()) {
    const bool take_old = fresh == found_.size() || (old < best_.size() && best_[old].bytes <= found_[fresh].bytes);
    const auto& next = take_old ? best_[old++] : found_[fresh++];
    if (!merged_.empty() && next.nanoseconds >= merged_.back().nanoseconds) continue;
    if (!merged_.empty() && next.bytes == merged_.back().bytes) merged_.pop_back();
    merged_.push_back(next);
  }
  best_.swap(merged_);
  found_.clear();
}

}  // namespace tandem::memory::detail
