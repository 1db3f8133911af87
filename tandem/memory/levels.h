#pragma once
#include <span>
#include <vector>

#include "tandem/base/category.h"
#include "tandem/base/context.h"

namespace tandem::memory {

/// What is live when a phase of a step begins, or when it stops to grow for a while: before something is freed.
struct Level {
  static constexpr int kBegin = -1;  // in place of a block, when a phase begins

  Phase phase = Phase::forward;
  int block = kBegin;  // of what was allocated last
  CategoryBytes bytes{};

  bool is_of(const Level& other) const { return phase == other.phase && block == other.block; }
};
using Levels = std::vector<Level>;

/// The first of the highest. There must be one.
const Level& highest_of(const Levels& levels);

/// The highest level of each block in each phase, in the order of their first ones.
Levels highest_of_blocks(const Levels& levels);

/// The levels of a step at some size, such as a number of images.
struct SizedLevels {
  int64_t size = 0;
  Levels levels;
};

/// The levels at a larger size, in line with those at one to three smaller ones, which rise: each byte that grows does
/// so by the steeper of the slopes between them. Where sizes change how a step goes, and not only its bytes, there are
/// only levels of highest_of_blocks().
///
///   bytes              . ´
///                  . x            steeper: the last two would be too low if the first two are
///           x ─ ´
///      x ´
///   ──────────────────────▶ size
Levels extended(std::span<const SizedLevels> points, int64_t size);

/// `levels` with another size of a part that is the same beside all blocks but `block`: with what `to` has more than
/// `from` in that block, or where a phase begins or ends.
Levels with_change(Levels levels, int block, const Levels& from, const Levels& to);

}  // namespace tandem::memory
