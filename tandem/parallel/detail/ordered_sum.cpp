#include "tandem/parallel/detail/ordered_sum.h"

#include <ATen/ATen.h>

#include "tandem/base/context.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"

namespace tandem::parallel::detail {

OrderedSum::OrderedSum(const Tensor& like, comm::ProcessGroup& group)
    : group_(group), sizes_(comm::split_sizes(like.numel(), group.size())) {
  const CategoryScope scope(Category::gradients);
  sum_ = at::zeros({sizes_[group.rank()]}, like.options().requires_grad(false));
}

void OrderedSum::add(const Tensor& term, bool is_first) {
  const auto own = sum_.size(0);
  if (is_first) sum_.zero_();
  const auto parts = comm::all_to_all(term, group_, 0, sizes_, std::vector<int64_t>(group_.size(), own));
  for (int rank = 0; rank < group_.size(); ++rank) sum_.add_(parts.narrow(0, rank * own, own));
}

void OrderedSum::end(const Tensor& result) { result.copy_(comm::all_gather(sum_, group_, 0, sizes_)); }

}  // namespace tandem::parallel::detail
