#pragma once
#include <span>

#include "tandem/base/tensor.h"
#include "tandem/comm/handle.h"
#include "tandem/comm/process_group.h"

namespace tandem::comm {

enum class Reduce { sum, mean, max, min };

// All functions here are collective: every rank of the group must call them, in the same order and with the same
// element type. In a group of one rank each function is the identity.
//
// Gradients: the scalar that is differentiated is the SUM of all ranks' losses. The gradient of an operator is its
// adjoint, which is an operator too, so second derivatives work. Backward is collective as well: every rank must run
// it, and a rank without a loss calls backward_without_loss(). An input must require a gradient on all ranks or on
// none; ProcessGroup::set_check() reports ranks that differ. The group must outlive the graph.
//
// sizes    size of each rank's part along `dim`, one number per rank; parts may differ and may be empty
// where    the call site, for error messages; leave it at its default
// _async   starts the operation and returns; see handle.h
//
// Errors: wrong arguments throw c10::ValueError or c10::IndexError on the rank that passes them. c10::DistBackendError
// is thrown if a rank does not take part or calls another operation. Memory: the result, and what the function's
// comment adds.

/// Returns the root's x on every rank. The other ranks pass a tensor of the same shape and type. Gradient: reduce_sum;
/// zeros on the other ranks.
Tensor broadcast(const Tensor& x, int root, ProcessGroup& group, flight::Where where = flight::Where::current());
Handle broadcast_async(const Tensor& x, int root, ProcessGroup& group, flight::Where where = flight::Where::current());

/// Returns the sum over the ranks at the root, and an empty tensor of shape [0] on the other ranks. x: any shape, the
/// same on all ranks. Gradient: broadcast.
Tensor reduce_sum(const Tensor& x, int root, ProcessGroup& group, flight::Where where = flight::Where::current());
Handle reduce_sum_async(const Tensor& x, int root, ProcessGroup& group, flight::Where where = flight::Where::current());

/// Returns the reduction over the ranks on every rank. x: any shape, the same on all ranks. Gradient of sum and mean:
/// the same reduction of the gradients. Gradient of max and min: the sum of the gradients, shared equally among the
/// ranks that hold the extremum (memory: one byte per element between forward and backward).
Tensor all_reduce(const Tensor& x, ProcessGroup& group, Reduce op = Reduce::sum,
                  flight::Where where = flight::Where::current());
Handle all_reduce_async(const Tensor& x, ProcessGroup& group, Reduce op = Reduce::sum,
                        flight::Where where = flight::Where::current());

/// Returns the ranks' parts concatenated along `dim`, in rank order, at the root, and an empty tensor [.., 0, ..] on
/// the other ranks. Gradient: scatter. Without `sizes` the ranks exchange them first (8 bytes per rank).
Tensor gather(const Tensor& x, int root, ProcessGroup& group, int64_t dim = 0, std::span<const int64_t> sizes = {},
              flight::Where where = flight::Where::current());
Handle gather_async(const Tensor& x, int root, ProcessGroup& group, int64_t dim = 0,
                    std::span<const int64_t> sizes = {}, flight::Where where = flight::Where::current());

/// Splits the root's x along `dim` and returns each rank its part. The other ranks pass any tensor with the same other
/// dims. Gradient: gather. Without `sizes` the root's x is split by split_sizes(); the root broadcasts its size first
/// (8 bytes).
Tensor scatter(const Tensor& x, int root, ProcessGroup& group, int64_t dim = 0, std::span<const int64_t> sizes = {},
               flight::Where where = flight::Where::current());
Handle scatter_async(const Tensor& x, int root, ProcessGroup& group, int64_t dim = 0,
                     std::span<const int64_t> sizes = {}, flight::Where where = flight::Where::current());

/// Returns the ranks' parts concatenated along `dim`, in rank order, on every rank. Gradient: reduce_scatter. Without
/// `sizes` the ranks exchange them first. Memory between processes: uneven parts temporarily take twice the result.
Tensor all_gather(const Tensor& x, ProcessGroup& group, int64_t dim = 0, std::span<const int64_t> sizes = {},
                  flight::Where where = flight::Where::current());
Handle all_gather_async(const Tensor& x, ProcessGroup& group, int64_t dim = 0, std::span<const int64_t> sizes = {},
                        flight::Where where = flight::Where::current());

/// Sums x over the ranks, in rank order, and returns each rank its part of the sum along `dim`. x: the same shape on
/// all ranks. Without `sizes` the sum is split by split_sizes(). Gradient: all_gather. Memory between processes:
/// temporarily size() parts, or 2 MiB per peer if a part is larger than 1 MiB.
Tensor reduce_scatter(const Tensor& x, ProcessGroup& group, int64_t dim = 0, std::span<const int64_t> sizes = {},
                      flight::Where where = flight::Where::current());
Handle reduce_scatter_async(const Tensor& x, ProcessGroup& group, int64_t dim = 0, std::span<const int64_t> sizes = {},
                            flight::Where where = flight::Where::current());

/// Sends part j of x to rank j and returns the parts from all ranks, concatenated along `dim` in rank order. Gradient:
/// all_to_all with the sizes swapped. `sent`: sizes of the parts of this rank's x, by default split_sizes().
/// `received`: sizes of the parts from each rank; without it the ranks exchange them first.
Tensor all_to_all(const Tensor& x, ProcessGroup& group, int64_t dim = 0, std::span<const int64_t> sent = {},
                  std::span<const int64_t> received = {}, flight::Where where = flight::Where::current());
Handle all_to_all_async(const Tensor& x, ProcessGroup& group, int64_t dim = 0, std::span<const int64_t> sent = {},
                        std::span<const int64_t> received = {}, flight::Where where = flight::Where::current());

/// Changes the dim along which a tensor is distributed: x is split along `split_dim`, and the received parts are
/// concatenated along `concat_dim`. For example, [n, c / N] -> [n / N, c] is all_to_all(x, group, 0, 1), from model
/// parallel to data parallel; (1, 0) is its inverse, and its gradient. `split_sizes`: the same on all ranks, by default
/// comm::split_sizes(). `concat_sizes`: each rank's size of concat_dim; without it the ranks exchange them first.
/// Memory: temporarily another copy of x and of the result.
Tensor all_to_all(const Tensor& x, ProcessGroup& group, int64_t split_dim, int64_t concat_dim,
                  std::span<const int64_t> split_sizes = {}, std::span<const int64_t> concat_sizes = {},
                  flight::Where where = flight::Where::current());

// In place and without a gradient. x must be contiguous.
void all_reduce_(Tensor x, ProcessGroup& group, Reduce op = Reduce::sum,
                 flight::Where where = flight::Where::current());
void broadcast_(Tensor x, int root, ProcessGroup& group, flight::Where where = flight::Where::current());

/// x has an equal part of each rank along dim 0, in rank order. all_gather_ fills the parts of the other ranks;
/// reduce_scatter_ replaces this rank's part by its sum over the ranks, in rank order, and leaves the others as they
/// are. Memory: none for all_gather_ and between thread-ranks; between processes that of reduce_scatter().
void all_gather_(Tensor x, ProcessGroup& group, flight::Where where = flight::Where::current());
void reduce_scatter_(Tensor x, ProcessGroup& group, flight::Where where = flight::Where::current());

/// Returns when every rank has called it.
void barrier(ProcessGroup& group, flight::Where where = flight::Where::current());

/// Returns true on every rank if any rank passes true.
bool any_rank(bool own, ProcessGroup& group, flight::Where where = flight::Where::current());

/// Runs the backward pass of a rank that has no loss: it starts from `outputs` with zero gradients, so that this rank
/// takes part in the operators of the other ranks' backward passes. Outputs that require no gradient are skipped.
void backward_without_loss(const std::vector<Tensor>& outputs);

}  // namespace tandem::comm
