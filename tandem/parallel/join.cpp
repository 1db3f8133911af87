#include "tandem/parallel/join.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"

namespace tandem::parallel {

/// Sums over the ranks.
Join::Step Join::meet(Step own, flight::Where where) {
  const auto sums = at::tensor({own.ranks, own.samples}, at::kLong);
  comm::all_reduce_(sums, replicas_.group(), comm::Reduce::sum, where);
  const auto* numbers = sums.const_data_ptr<int64_t>();
  return {numbers[0], numbers[1]};
}

Join::Step Join::begin(int64_t own_samples, flight::Where where) {
  TORCH_CHECK_VALUE(own_samples >= 0, "join: a batch has ", own_samples, " samples, wanted 0 or more");
  ++own_steps_;
  return meet({1, own_samples}, where);
}

void Join::end(const std::function<void()>& step, flight::Where where) {
  while (meet({}, where).ranks > 0) {
    replicas_.shadow_step(where);
    if (step) {
      step();
    } else {
      replicas_.zero_grad();
    }
  }
  const auto steps = comm::gather_numbers(own_steps_, replicas_.group());
  replicas_.copy_from(static_cast<int>(std::ranges::max_element(steps) - steps.begin()));
}

}  // namespace tandem::parallel
