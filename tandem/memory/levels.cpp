#include "tandem/memory/levels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

namespace tandem::memory {
namespace {

const Level* find(const Levels& levels, const Level& like) {
  const auto at = std::ranges::find_if(levels, [&](const Level& one) { return one.is_of(like); });
  return at == levels.end() ? nullptr : &*at;
}

bool go_alike(const Levels& one, const Levels& other) {
  return std::ranges::equal(one, other, [](const Level& a, const Level& b) { return a.is_of(b); });
}

using Slope = std::array<double, kNumCategories>;  // bytes of a unit of size

Slope slope_of(const CategoryBytes& from, const CategoryBytes& to, int64_t sizes) {
  Slope slope;
  for (size_t i = 0; i < slope.size(); ++i) {
    slope[i] = static_cast<double>(to[i] - from[i]) / static_cast<double>(sizes);
  }
  return slope;
}

double sum_of(const Slope& slope) { return std::accumulate(slope.begin(), slope.end(), 0.0); }

}  // namespace

const Level& highest_of(const Levels& levels) {
  return *std::ranges::max_element(levels, {}, [](const Level& level) { return total_of(level.bytes); });
}

Levels highest_of_blocks(const Levels& levels) {
  Levels highest;
  for (const auto& level : levels) {
    const auto known = std::ranges::find_if(highest, [&](const Level& one) { return one.is_of(level); });
    if (known == highest.end()) {
      highest.push_back(level);
    } else if (total_of(known->bytes) < total_of(level.bytes)) {
      *known = level;
    }
  }
  return highest;
}

Levels extended(std::span<const SizedLevels> points, int64_t size) {
  std::vector<SizedLevels> all(points.begin(), points.end());
  const auto& last = all.back();
  const auto differs = [&](const SizedLevels& point) { return !go_alike(point.levels, last.levels); };
  const bool is_alike = std::ranges::none_of(all, differs);
  if (!is_alike) {
    for (auto& point : all) point.levels = highest_of_blocks(point.levels);
  }
  Levels result = last.levels;
  for (size_t k = 0; k < result.size(); ++k) {
    std::optional<Slope> steepest;
    for (size_t i = 1; i < all.size(); ++i) {
      const auto *from = is_alike ? &all[i - 1].levels[k] : find(all[i - 1].levels, result[k]),
                 *to = is_alike ? &all[i].levels[k] : find(all[i].levels, result[k]);
      if (from == nullptr || to == nullptr) continue;
      const auto slope = slope_of(from->bytes, to->bytes, all[i].size - all[i - 1].size);
      if (!steepest || sum_of(slope) > sum_of(*steepest)) steepest = slope;
    }
    if (!steepest) continue;
    for (size_t i = 0; i < steepest->size(); ++i) {
      result[k].bytes[i] += std::llround((*steepest)[i] * static_cast<double>(size - last.size));
    }
  }
  return result;
}

Levels with_change(Levels levels, int block, const Levels& from, const Levels& to) {
  const auto before = highest_of_blocks(from), after = highest_of_blocks(to);
  for (auto& level : levels) {
    auto like = level;
    const bool is_own = level.block == block || level.block == Level::kBegin || level.phase == Phase::optimizer;
    if (!is_own || find(before, like) == nullptr || find(after, like) == nullptr) {
      like = {.phase = level.phase == Phase::forward ? Phase::forward : Phase::optimizer};
    }
    const auto &less = find(before, like)->bytes, &more = find(after, like)->bytes;
    for (size_t i = 0; i < less.size(); ++i) level.bytes[i] += more[i] - less[i];
  }
  return levels;
}

}  // namespace tandem::memory
