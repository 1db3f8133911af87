#pragma once
#include <optional>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"
#include "tandem/parallel/detail/ordered_sum.h"

namespace tandem::parallel {

/// The sum of gradients over the parts of a batch and over the ranks of a group, for code that differentiates itself
/// (torch::autograd::grad): DistributedDataParallel and its like see the gradients of backward alone.
///
///   GradientTotal total(weights, group, /*in_order=*/false);
///   for (const auto& part : parts) total.add(torch::autograd::grad({loss_of(part)}, weights));
///   total.end();                                                  // one message
///   use(total.of(0), ...);
///
/// In order, the sum runs over the parts of rank 0, 1, ... first, then over the next of each, so that its bits do not
/// depend on how many ranks share the parts: see OrderedDataParallel. Each add() is then collective, and sends
/// (N - 1) / N of the bytes; otherwise end() alone is. Memory: the bytes of the gradients; in order 1 / N of them more,
/// and while they travel as many again.
class GradientTotal {
 public:
  /// For gradients of the shapes of `of`, which have one element type and lie on one device. The group must outlive
  /// the object.
  GradientTotal(const std::vector<Tensor>& of, comm::ProcessGroup& group, bool in_order);

  /// Adds the gradients of a part; an undefined one is zero.
  void add(const std::vector<Tensor>& gradients);

  /// Makes the sums of all ranks. Collective.
  void end();

  /// One of the sums, a view of flat().
  Tensor of(size_t index) const { return views_[index]; }
  const std::vector<Tensor>& views() const { return views_; }

  /// All sums, one behind the other.
  const Tensor& flat() const { return flat_; }

 private:
  void put(const std::vector<Tensor>& gradients);

  comm::ProcessGroup& group_;
  Tensor flat_;
  std::vector<Tensor> views_;
  std::optional<detail::OrderedSum> ordered_;
  bool is_empty_ = true;
};

}  // namespace tandem::parallel
