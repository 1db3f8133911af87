#include "tandem/classifier/detail/lanes.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>

namespace tandem::classifier::detail {

void run_lanes(int lanes, const std::function<void(int lane)>& body) {
  if (lanes == 1) return body(0);
  const at::ThreadLocalState state;
  at::parallel_for(0, lanes, 1, [&](int64_t begin, int64_t end) {
    const at::ThreadLocalStateGuard guard(state);
    for (int64_t lane = begin; lane < end; ++lane) body(static_cast<int>(lane));
  });
}

}  // namespace tandem::classifier::detail
