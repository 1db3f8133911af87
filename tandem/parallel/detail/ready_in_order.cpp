#include "tandem/parallel/detail/ready_in_order.h"

#include <ATen/ATen.h>

#include <utility>

namespace tandem::parallel::detail {

struct ReadyInOrder::Progress {
  std::function<void(size_t)> ready;
  std::vector<size_t> sizes;    // of the lists
  std::vector<size_t> missing;  // gradients of each list
  size_t next = 0;              // the first list that is not ready
  bool is_on = false;

  void take(size_t list) {
    if (!is_on) return;
    TORCH_CHECK(list >= next && missing[list] > 0,
                "fully shard: a gradient comes again after its sum has begun, wanted one backward a micro-batch");
    --missing[list];
    while (next < missing.size() && missing[next] == 0) ready(next++);
  }
};

ReadyInOrder::ReadyInOrder(const std::vector<std::vector<Tensor>>& lists, std::function<void(size_t)> ready)
    : progress_(std::make_shared<Progress>()) {
  progress_->ready = std::move(ready);
  for (size_t list = 0; list < lists.size(); ++list) {
    progress_->sizes.push_back(lists[list].size());
    for (const auto& parameter : lists[list]) {
      watches_.emplace_back(parameter, [progress = progress_, list] { progress->take(list); });
    }
  }
}

void ReadyInOrder::begin() {
  progress_->missing = progress_->sizes;
  progress_->next = 0;
  progress_->is_on = true;
}

void ReadyInOrder::end() {
  if (!std::exchange(progress_->is_on, false)) return;
  while (progress_->next < progress_->missing.size()) progress_->ready(progress_->next++);
}

void ReadyInOrder::drop() { progress_->is_on = false; }

}  // namespace tandem::parallel::detail
