#pragma once
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"

namespace tandem::parallel::detail {

/// The sum of tensors over the ranks of a group and over several calls, in the order of the calls and, in each, of the
/// ranks: call i of rank r is term i * ranks + r. Its bits do not depend on how many ranks bring the terms.
///
/// Each rank sums a part (split_sizes()). Memory: 1 / ranks of the tensor; in a call as many bytes again as the tensor.
/// Wire: (N - 1) / N of the tensor's bytes a rank and call, and the same at the end. The group must outlive the object.
class OrderedSum {
 public:
  /// For tensors [n] like this one.
  OrderedSum(const Tensor& like, comm::ProcessGroup& group);

  /// Adds this rank's term; the first one begins a new sum. Collective.
  void add(const Tensor& term, bool is_first);

  /// Writes the sum to `result`, [n], on all ranks. Collective.
  void end(const Tensor& result);

 private:
  comm::ProcessGroup& group_;
  std::vector<int64_t> sizes_;  // of each rank's part
  Tensor sum_;                  // this rank's part
};

}  // namespace tandem::parallel::detail
