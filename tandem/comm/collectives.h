#pragma once
#include <span>

#include "tandem/base/tensor.h"
#include "tandem/comm/handle.h"
#include "tandem/comm/process_group.h"

namespace tandem::comm {

enum class Reduce { sum, mean, max, min };

// All functions here are collective: every rank of the group calls them, in the same order, with the same types.
// In a group of one each is the identity.
//
// Gradients follow one convention: the scalar that is differentiated is the SUM over the ranks of each rank's loss.
// Each operator's gradient is its adjoint, an operator itself, so that second derivatives work too. Backward is
// collective as well: every rank must run it, those without a loss through backward_without_loss(), and an input needs
// a gradient on all ranks or on none (ProcessGroup::set_check tells who differs). The group must outlive the graph.
//
// sizes    how the parts lie along dim `dim`, one number a rank; parts may be empty and of different sizes
// where    the caller's place, for messages; leave it out
// _async   begins and returns; see handle.h
//
// Errors: c10::ValueError and c10::IndexError for wrong arguments, on the rank that gives them; c10::DistBackendError
// when a rank does not take part or calls something else. Memory: what is returned, and what is said below.

/// The root's tensor on all ranks. Others give a tensor of the same shape and type. Gradient: reduce_sum; zero
/// elsewhere.
Tensor broadcast(const Tensor& x, int root, ProcessGroup& group, flight::Where where = flight::Where::current());
Handle broadcast_async(const Tensor& x, int root, ProcessGroup& group, flight::Where where = flight::Where::current());

/// Sum over the ranks, at the root; [0] elsewhere. Gradient: broadcast. x: any shape, equal on all ranks.
Tensor reduce_sum(const Tensor& x, int root, ProcessGroup& group, flight::Where where = flight::Where::current());
Handle reduce_sum_async(const Tensor& x, int root, ProcessGroup& group, flight::Where where = flight::Where::current());

/// Reduction over the ranks, the same on all. x: any shape, equal on all ranks. Gradient of sum and mean: the same
/// reduction of the gradients; of max and min: their sum, shared equally by the ranks that hold the extremum (memory:
/// one byte an element between forward and backward).
Tensor all_reduce(const Tensor& x, ProcessGroup& group, Reduce op = Reduce::sum,
                  flight::Where where = flight::Where::current());
Handle all_reduce_async(const Tensor& x, ProcessGroup& group, Reduce op = Reduce::sum,
                        flight::Where where = flight::Where::current());

/// The ranks' parts one after the other along `dim`, at the root; nothing, [.., 0, ..], elsewhere. Gradient: scatter.
/// Without sizes they are exchanged first (8 bytes a rank).
Tensor gather(const Tensor& x, int root, ProcessGroup& group, int64_t dim = 0, std::span<const int64_t> sizes = {},
              flight::Where where = flight::Where::current());
Handle gather_async(const Tensor& x, int root, ProcessGroup& group, int64_t dim = 0,
                    std::span<const int64_t> sizes = {}, flight::Where where = flight::Where::current());

/// The root's x cut along `dim`; each rank gets its part. Others give any tensor with the right other dims. Gradient:
/// gather. Without sizes the root's is cut by split_sizes (it tells its size first, 8 bytes).
Tensor scatter(const Tensor& x, int root, ProcessGroup& group, int64_t dim = 0, std::span<const int64_t> sizes = {},
               flight::Where where = flight::Where::current());
Handle scatter_async(const Tensor& x, int root, ProcessGroup& group, int64_t dim = 0,
                     std::span<const int64_t> sizes = {}, flight::Where where = flight::Where::current());

/// The ranks' parts one after the other along `dim`, on all. Gradient: reduce_scatter. Without sizes they are exchanged
/// first. Memory between processes: with uneven parts twice the result for a moment.
Tensor all_gather(const Tensor& x, ProcessGroup& group, int64_t dim = 0, std::span<const int64_t> sizes = {},
                  flight::Where where = flight::Where::current());
Handle all_gather_async(const Tensor& x, ProcessGroup& group, int64_t dim = 0, std::span<const int64_t> sizes = {},
                        flight::Where where = flight::Where::current());

/// Sum over the ranks, in rank order, of which each keeps its own part along `dim`. Gradient: all_gather. x: equal
/// shape on all ranks; without sizes cut by split_sizes. Memory between processes: size() parts for a moment.
Tensor reduce_scatter(const Tensor& x, ProcessGroup& group, int64_t dim = 0, std::span<const int64_t> sizes = {},
                      flight::Where where = flight::Where::current());
Handle reduce_scatter_async(const Tensor& x, ProcessGroup& group, int64_t dim = 0, std::span<const int64_t> sizes = {},
                            flight::Where where = flight::Where::current());

/// Part j of x goes to rank j; the parts from all ranks one after the other along `dim`. Gradient: all_to_all with the
/// sizes exchanged. `sent`: of this rank's x, without it split_sizes; `received`: from each rank, without it the ranks
/// tell each other.
Tensor all_to_all(const Tensor& x, ProcessGroup& group, int64_t dim = 0, std::span<const int64_t> sent = {},
                  std::span<const int64_t> received = {}, flight::Where where = flight::Where::current());
Handle all_to_all_async(const Tensor& x, ProcessGroup& group, int64_t dim = 0, std::span<const int64_t> sent = {},
                        std::span<const int64_t> received = {}, flight::Where where = flight::Where::current());

/// From split along one dim to split along another: x is cut along `split_dim`, what comes is joined along
/// `concat_dim`. [n, c / N] -> [n / N, c] is all_to_all(x, group, 0, 1): from model parallel to data parallel; (1, 0)
/// goes back, and is the gradient. `split_sizes`: the same on all ranks, without it split_sizes; `concat_sizes`: each
/// rank's size of concat_dim, without it exchanged first. Memory: x and the result once more for a moment.
Tensor all_to_all(const Tensor& x, ProcessGroup& group, int64_t split_dim, int64_t concat_dim,
                  std::span<const int64_t> split_sizes = {}, std::span<const int64_t> concat_sizes = {},
                  flight::Where where = flight::Where::current());

// In place, without a gradient. x is contiguous.
void all_reduce_(Tensor x, ProcessGroup& group, Reduce op = Reduce::sum,
                 flight::Where where = flight::Where::current());
void broadcast_(Tensor x, int root, ProcessGroup& group, flight::Where where = flight::Where::current());

/// Returns when every rank has come.
void barrier(ProcessGroup& group, flight::Where where = flight::Where::current());

/// Whether any rank gives true; the same answer on all ranks.
bool any_rank(bool own, ProcessGroup& group, flight::Where where = flight::Where::current());

/// The backward pass of a rank that holds no loss: from `outputs` with gradients of zeros, so that it takes part in the
/// operators that the others' backward passes come to. Outputs outside of the graph are passed over.
void backward_without_loss(const std::vector<Tensor>& outputs);

}  // namespace tandem::comm
