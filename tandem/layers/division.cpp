#include "tandem/layers/division.h"

#include <c10/util/Exception.h>

#include <numeric>

#include "tandem/comm/split.h"

namespace tandem::layers {

Division::Division(comm::ProcessGroup& group, int64_t total)
    : Division(group, comm::split_sizes(total, group.size())) {}

Division::Division(comm::ProcessGroup& group, std::vector<int64_t> counts)
    : group_(&group), counts_(std::move(counts)) {
  TORCH_CHECK_VALUE(std::ssize(counts_) == group.size(), "division: ", counts_.size(), " counts for ", group.size(),
                    " ranks, wanted one a rank");
  for (const auto count : counts_) TORCH_CHECK_VALUE(count >= 0, "division: a count is ", count, ", wanted 0 or more");
  first_ = std::accumulate(counts_.begin(), counts_.begin() + group.rank(), int64_t{0});
  total_ = comm::sum_of(counts_);
}

Division Division::times(int64_t each) const {
  auto counts = counts_;
  for (auto& count : counts) count *= each;
  return {*group_, std::move(counts)};
}

}  // namespace tandem::layers
