#pragma once
#include <span>

#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"

namespace tandem::comm {

enum class Reduce { sum, mean, max, min };

// All functions here are collective: every rank of the group calls them, in the same order, with the same types.
// In a group of one each is the identity. The gradients follow one convention: the scalar that is differentiated is the
// SUM over the ranks of each rank's loss. Errors: c10::ValueError for wrong arguments, c10::DistBackendError when a
// rank does not take part.

/// Reduction over the ranks, the same on all. Gradient (sum, mean): the same reduction of the gradients; max and min
/// have none here. x: any shape, equal on all ranks.
Tensor all_reduce(const Tensor& x, ProcessGroup& group, Reduce op = Reduce::sum);

/// What one all_reduce of x counts for on this rank's wire meter; see wire_meter.h. Not collective.
int64_t all_reduce_bytes(const Tensor& x, ProcessGroup& group);

/// The same in place and without a gradient.
void all_reduce_(Tensor x, ProcessGroup& group, Reduce op = Reduce::sum);

/// The ranks' parts one after the other along `dim`. Gradient: reduce_scatter.
///   x      [.., n_r, ..]  n_r may differ between ranks; the other dims are equal
///   sizes  n_r of every rank, when known; without it they are exchanged first (8 bytes a rank)
/// Memory: the result; with uneven parts twice as much for a moment.
Tensor all_gather(const Tensor& x, ProcessGroup& group, int64_t dim = 0, std::span<const int64_t> sizes = {});

/// Sum over the ranks, of which each keeps its own part along `dim`. Gradient: all_gather.
///   x      [.., n, ..]    equal on all ranks
///   sizes  how n is split; without it split_sizes(n, size)
/// The sum runs in rank order. Memory: size() parts for a moment.
Tensor reduce_scatter(const Tensor& x, ProcessGroup& group, int64_t dim = 0, std::span<const int64_t> sizes = {});

/// The root's tensor on all ranks. Others give a tensor of the same shape and type. Gradient: sum at the root, zero
/// elsewhere.
Tensor broadcast(const Tensor& x, int root, ProcessGroup& group);

/// The same in place and without a gradient.
void broadcast_(Tensor x, int root, ProcessGroup& group);

/// The ranks' parts along dim 0, on the root only; [0, ..] elsewhere. No gradient.
Tensor gather(const Tensor& x, int root, ProcessGroup& group, std::span<const int64_t> sizes);

/// The root's x [sum(sizes), ..] cut along dim 0; each rank gets its part. Others give any tensor with the right
/// trailing dims. No gradient.
Tensor scatter(const Tensor& x, int root, ProcessGroup& group, std::span<const int64_t> sizes);

/// Returns when every rank has come.
void barrier(ProcessGroup& group);

}  // namespace tandem::comm
