#pragma once
#include <cstdint>
#include <vector>

#include "tandem/memory/recompute_plan.h"

namespace tandem::memory::detail {

/// Ascending bytes, descending time: a step function from bytes to the least time within them.
using Frontier = std::vector<Tradeoff>;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

/// The time within so many bytes; kNever if there is none.
int64_t time_within(const Frontier& frontier, int64_t bytes);

/// A frontier while other bytes are held.
struct Raised {
  const Frontier& frontier;
  int64_t above;

  int last() const { return static_cast<int>(frontier.size()) - 1; }
  int64_t bytes(int i) const { return frontier[i].bytes + above; }
  int64_t time(int i) const { return frontier[i].nanoseconds; }

  /// The last of from..to whose bytes are at most `bytes`; from - 1 if there is none.
  int at(int64_t bytes, int from, int to) const;
};

/// Two parts that take turns with the memory, and something before them: bytes are maxima, times add up.
struct Turns {
  int64_t least, nanoseconds;
  Raised one, two;

  int64_t time(int i, int j) const { return nanoseconds + one.time(i) + two.time(j); }
};

/// The lower envelope of many frontiers.
class FrontierBuilder {
 public:
  void add(const Turns& turns);
  const Frontier& best() const { return best_; }
  Frontier take() { return std::move(best_); }

 private:
  /// The bytes from `begin` on, where the frontiers of the turns and the best so far stand at these tradeoffs first and
  /// last.
  struct Stretch {
    int64_t begin;
    int one, one_end, two, two_end, best, best_end;
  };
  void improve(const Turns& turns, const Stretch& stretch);
  void list(const Turns& turns, const Stretch& stretch);
  void merge();

  Frontier best_, found_, merged_;
};

}  // namespace tandem::memory::detail
