#pragma once
#include <cstdint>
#include <vector>

#include "tandem/memory/recompute_plan.h"

namespace tandem::memory::detail {

/// Sums over the stages of a chain. What stage i passes on is called flow i; flow -1 is the input of the chain.
class PlanBytes {
 public:
  explicit PlanBytes(const std::vector<Stage>& stages);

  /// Of flow `k`, what is not in flow `held` < k.
  int64_t flow_beyond(int held, int k) const;

  /// Of the gradient of flow `k`.
  int64_t gradient(int k) const { return flow_beyond(-1, k); }

  /// Of parameters' gradients, when backward has left the stages after `k`.
  int64_t gradients_after(int k) const { return gradients_after_[k]; }

  /// The most that can be held of the stages before `k`.
  int64_t most_before(int k) const { return most_before_[k]; }

  /// The least number that `held` can be replaced by in flow_beyond(held, k) for all k >= `flow` > held.
  int same_held(int held, int flow) const;

 private:
  const std::vector<Stage>& stages_;
  std::vector<int64_t> gradients_after_, most_before_;
};

}  // namespace tandem::memory::detail
