#pragma once
#include <cstdint>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/parallel/placement.h"

namespace tandem::layers {

/// A dim of a layer, divided over the ranks of a group: rank r holds counts()[r] indices in a row.
///
///   Division(group of 3, 8)    indices 0 1 2 | 3 4 5 | 6 7
class Division {
 public:
  /// By comm::split_sizes(). The group must outlive this object. Throws c10::ValueError if `total` is below 0.
  Division(comm::ProcessGroup& group, int64_t total);

  /// Throws c10::ValueError unless there is a count, 0 or more, for each rank.
  Division(comm::ProcessGroup& group, std::vector<int64_t> counts);

  /// Each index becomes so many in a row: channels of groups, numbers of heads.
  Division times(int64_t each) const;

  comm::ProcessGroup& group() const { return *group_; }
  const std::vector<int64_t>& counts() const { return counts_; }
  int64_t first() const { return first_; }  // of this rank
  int64_t count() const { return counts_[group_->rank()]; }
  int64_t total() const { return total_; }

  /// Where this rank's part of a tensor lies whose dim `dim` is divided so.
  parallel::Split split(int64_t dim) const { return {dim, first_, count(), total_}; }

 private:
  comm::ProcessGroup* group_;
  std::vector<int64_t> counts_;
  int64_t first_ = 0, total_ = 0;
};

}  // namespace tandem::layers
