#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tandem/memory/detail/frontier.h"
#include "tandem/memory/detail/plan_bytes.h"
#include "tandem/memory/recompute_plan.h"

namespace tandem::memory::detail {

/// The frontier of each part of a chain, by dynamic programming.
///
/// A part is some stages, from their forward to the end of their backward. Its bytes are those above what others hold
/// meanwhile. A part either keeps its first stage or recomputes its first stages:
///
///   ├─ keep s ─┤◀──── part s+1..t, above what s keeps ────▶├─ backward s ─┤
///   ├─ pass s..j ─┤◀──── part j+1..t, above the input of s ────▶◀──── part s..j, above it ────▶┤
///
/// The bytes of either are the maximum, the time is the sum over what follows one another, so only tradeoffs of the
/// smaller parts can lead to tradeoffs of the larger. Recomputing up to the last stage of a part gains nothing: the
/// stages would run again at once.
///
/// For budgets in a range, tradeoffs are left out that no plan can use: with more bytes than the range leaves beside
/// the input that others hold, and with fewer bytes than a part has in any case, even if everything before it is kept.
///
/// Source: Herrmann et al. 2019 (arXiv:1911.13214), section 4; here with frontiers in place of slots of memory, and
/// with shortcuts, several ways to keep, and gradients of parameters.
class PlanSearch {
 public:
  PlanSearch(std::vector<Stage> stages, int64_t from, int64_t to);
  PlanSearch(const PlanSearch&) = delete;

  const std::vector<Stage>& stages() const { return stages_; }

  /// Of the whole chain; empty if nothing fits.
  const Frontier& frontier() const { return whole_; }

  /// The fastest plan within so many bytes, which must be in the range and not below the frontier.
  RecomputePlan plan(int64_t bytes) const;

 private:
  /// The stages `first` to `last`; nothing if first > last. Others hold flow `held` < first (what that stage passes
  /// on). If that is not the input, which is flow first - 1, the part itself holds the input, as long as it needs it.
  /// In a `replay`, the gradient of the part's output lives from the beginning.
  struct Part {
    int first = 0, last = -1;
    bool replay = false;
    int held = -1;
  };
  /// How a part begins: its first stage is kept, or, with keep < 0, the stages up to `end` are recomputed.
  struct Beginning {
    int end, keep;
    int64_t peak, nanoseconds;
    Part rest, inner;
    int64_t above_rest, above_inner;  // bytes that the part holds meanwhile
  };

  Part all() const { return {0, static_cast<int>(stages_.size()) - 1, false, -1}; }
  int64_t input_of(const Part& part) const;
  int64_t gradients_beside(const Part& part) const;
  int64_t most_for(const Part& part) const;
  Beginning keeping(const Part& part, int keep) const;
  std::vector<Beginning> beginnings(const Part& part) const;

  const Frontier& solve(const Part& part);
  Frontier search(const Part& part);
  const Frontier& solved(const Part& part) const;
  void append_plan(const Part& part, int64_t bytes, RecomputePlan& plan) const;

  const std::vector<Stage> stages_;
  const PlanBytes bytes_;
  const int64_t from_, to_;
  std::vector<int64_t> least_before_ = {0};  // nanoseconds of the stages before, if each runs once
  std::unordered_map<uint64_t, Frontier> solved_;
  Frontier whole_;
};

}  // namespace tandem::memory::detail
