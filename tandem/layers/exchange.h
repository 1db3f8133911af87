#pragma once
#include "tandem/base/tensor.h"
#include "tandem/layers/division.h"

/// Where values enter and leave layers that are split over the ranks of a group. Along such a group the ranks have the
/// same samples, and a value is one of these:
///
///   invariant    the same on all ranks, and so is its gradient: the loss counts once, whatever the number of ranks
///   varying      each rank has a part of its channels; the gradient is that of the part
///   replicated   the same on all ranks, each of which uses it in its own part; the gradient's terms are to be summed
///   partial      each rank has a term of a sum
///
///   copy_to_region       invariant ─▶ replicated    nothing                all_reduce of the gradient
///   reduce_from_region   partial ───▶ invariant     all_reduce             nothing
///   gather_from_region   varying ───▶ invariant     all_gather             own part
///   scatter_to_region    invariant ─▶ varying       own part               all_gather
///
/// These are the pairs f, g of Shoeybi et al. 2019, Megatron-LM (arXiv:1909.08053), and those of its code. They are not
/// the adjoints of tandem/comm/collectives.h, which count the loss once a rank: comm::all_gather (varying to
/// replicated) and comm::reduce_scatter (partial to varying) serve where the samples or the tokens are split too.
/// The gradient of each is one of them, so that second derivatives work. Collective, in backward too. In a group of one
/// rank each returns its input.
namespace tandem::layers {

Tensor copy_to_region(const Tensor& x, comm::ProcessGroup& group);
Tensor reduce_from_region(const Tensor& x, comm::ProcessGroup& group);

/// `dim` of the whole is divided as `parts` says. Memory: the result.
Tensor gather_from_region(const Tensor& x, int64_t dim, const Division& parts);

/// Memory: none, a view.
Tensor scatter_to_region(const Tensor& x, int64_t dim, const Division& parts);

}  // namespace tandem::layers
