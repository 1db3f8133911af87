#include "tandem/comm/collectives.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <numeric>

#include "tandem/comm/agree.h"
#include "tandem/comm/detail/operator.h"
#include "tandem/comm/detail/told.h"
#include "tandem/comm/split.h"

namespace tandem::comm {
namespace {

using detail::Caller;
using detail::checked_dim;
using detail::Plan;
using detail::PlanPointer;
using detail::Sizes;
using detail::told;
using Saved = std::vector<Tensor>;

/// x with dims 0 and `dim` swapped, contiguous.
Tensor rows_of(const Tensor& x, int64_t dim) { return dim == 0 ? x.contiguous() : x.transpose(0, dim).contiguous(); }

/// Undoes rows_of() when the rows have come.
Handle from_rows(Handle rows, int64_t dim) {
  if (dim == 0) return rows;
  return Handle(
      [dim, rows = std::make_shared<Handle>(std::move(rows))] { return rows->wait().transpose(0, dim).contiguous(); });
}

/// Zeros of the input's shape, for a rank whose input has no influence. The empty tensor `hook` keeps the result in the
/// graph, since the second backward pass is collective too.
Tensor no_gradient(const Plan& plan, const Tensor& hook) { return at::zeros(plan.shape, hook.options()) + hook.sum(); }

struct NothingSaved {
  static Saved save(const Tensor&, const Plan&, const Tensor&) { return {}; }
};

struct AllReduceOp {
  static Handle begin(const Tensor& x, const Plan& plan, const Caller& caller) {
    return detail::start_all_reduce(x.contiguous().clone(), caller, plan.op);
  }
  static bool is_extremum(const Plan& plan) { return plan.op == Reduce::max || plan.op == Reduce::min; }
  static Saved save(const Tensor& x, const Plan& plan, const Tensor& result) {
    return is_extremum(plan) ? Saved{x.eq(result)} : Saved{};
  }
  static Tensor gradient(const Plan& plan, const Tensor& g, const Saved& saved) {
    if (!is_extremum(plan)) return all_reduce(g, plan.group, plan.op, plan.where);
    const auto holds = saved[0].to(at::promote_types(g.scalar_type(), at::kFloat));
    const auto count = all_reduce(holds, plan.group, Reduce::sum, plan.where);
    const auto share = (holds / count).to(g.scalar_type());
    return all_reduce(g, plan.group, Reduce::sum, plan.where) * share;
  }
};

struct BroadcastOp : NothingSaved {
  static Handle begin(const Tensor& x, const Plan& plan, const Caller& caller) {
    return detail::start_broadcast(x.contiguous().clone(), caller, plan.root);
  }
  static Tensor gradient(const Plan& plan, const Tensor& g, const Saved&) {
    const auto sum = reduce_sum(g, plan.root, plan.group, plan.where);
    return plan.group.rank() == plan.root ? sum : no_gradient(plan, sum);
  }
};

struct ReduceSumOp : NothingSaved {
  static Handle begin(const Tensor& x, const Plan& plan, const Caller& caller) {
    auto sum = detail::start_reduce_sum(x.contiguous().clone(), caller, plan.root);
    if (plan.group.rank() == plan.root) return sum;
    return Handle([sum = std::make_shared<Handle>(std::move(sum))] { return at::empty({0}, sum->wait().options()); });
  }
  static Tensor gradient(const Plan& plan, const Tensor& g, const Saved&) {
    const bool is_root = plan.group.rank() == plan.root;
    return broadcast(is_root ? g : no_gradient(plan, g), plan.root, plan.group, plan.where);
  }
};

struct GatherOp : NothingSaved {
  static Handle begin(const Tensor& x, const Plan& plan, const Caller& caller) {
    return from_rows(detail::start_gather(rows_of(x, plan.dim), caller, plan.root, plan.sizes), plan.dim);
  }
  static Tensor gradient(const Plan& plan, const Tensor& g, const Saved&) {
    return scatter(g, plan.root, plan.group, plan.dim, plan.sizes, plan.where);
  }
};

struct ScatterOp : NothingSaved {
  static Handle begin(const Tensor& x, const Plan& plan, const Caller& caller) {
    return from_rows(detail::start_scatter(rows_of(x, plan.dim), caller, plan.root, plan.sizes), plan.dim);
  }
  static Tensor gradient(const Plan& plan, const Tensor& g, const Saved&) {
    const auto whole = gather(g, plan.root, plan.group, plan.dim, plan.sizes, plan.where);
    return plan.group.rank() == plan.root ? whole : no_gradient(plan, whole);
  }
};

struct AllGatherOp : NothingSaved {
  static Handle begin(const Tensor& x, const Plan& plan, const Caller& caller) {
    return from_rows(detail::start_all_gather(rows_of(x, plan.dim), caller, plan.sizes), plan.dim);
  }
  static Tensor gradient(const Plan& plan, const Tensor& g, const Saved&) {
    return reduce_scatter(g, plan.group, plan.dim, plan.sizes, plan.where);
  }
};

struct ReduceScatterOp : NothingSaved {
  static Handle begin(const Tensor& x, const Plan& plan, const Caller& caller) {
    return from_rows(detail::start_reduce_scatter(rows_of(x, plan.dim), caller, plan.sizes), plan.dim);
  }
  static Tensor gradient(const Plan& plan, const Tensor& g, const Saved&) {
    return all_gather(g, plan.group, plan.dim, plan.sizes, plan.where);
  }
};

struct AllToAllOp : NothingSaved {
  static Handle begin(const Tensor& x, const Plan& plan, const Caller& caller) {
    return from_rows(detail::start_all_to_all(rows_of(x, plan.dim), caller, plan.sizes, plan.received), plan.dim);
  }
  static Tensor gradient(const Plan& plan, const Tensor& g, const Saved&) {
    return all_to_all(g, plan.group, plan.dim, plan.received, plan.sizes, plan.where);
  }
};

/// Blocks that differ in two dims are sent flattened, each contiguous.
struct TransposeOp : NothingSaved {
  static Handle begin(const Tensor& x, const Plan& plan, const Caller& caller) {
    std::vector<Tensor> flat;
    Sizes sent, received;
    for (const auto& block : x.split_with_sizes(plan.sizes, plan.dim)) {
      flat.push_back(block.reshape({-1}));
      sent.push_back(block.numel());
    }
    auto shape = plan.shape;
    shape[plan.dim] = plan.sizes[plan.group.rank()];
    std::vector<Sizes> shapes;
    for (const auto size : plan.received) {
      shape[plan.other_dim] = size;
      shapes.push_back(shape);
      received.push_back(std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
    }
    auto moved = detail::start_all_to_all(at::cat(flat), caller, sent, received);
    return Handle([shapes, received, dim = plan.other_dim, moved = std::make_shared<Handle>(std::move(moved))] {
      auto blocks = moved->wait().split_with_sizes(received);
      for (size_t rank = 0; rank < blocks.size(); ++rank) blocks[rank] = blocks[rank].view(shapes[rank]);
      return at::cat(blocks, dim);
    });
  }
  static Tensor gradient(const Plan& plan, const Tensor& g, const Saved&) {
    return all_to_all(g, plan.group, plan.other_dim, plan.dim, plan.received, plan.sizes, plan.where);
  }
};

Handle finished(const Tensor& x) {
  return Handle([x] { return x; });
}

void check_root(int root, const ProcessGroup& group, const char* operation) {
  TORCH_CHECK_INDEX(root >= 0 && root < group.size(), operation, ": root is ", root, ", wanted 0..", group.size() - 1);
}

Sizes checked_sizes(std::span<const int64_t> sizes, const ProcessGroup& group, const char* operation) {
  TORCH_CHECK_VALUE(static_cast<int>(sizes.size()) == group.size(), operation, ": sizes has ", sizes.size(),
                    " entries, wanted one a rank, ", group.size());
  for (const auto size : sizes) {
    TORCH_CHECK_VALUE(size >= 0, operation, ": sizes has ", size, ", wanted 0 or more");
  }
  return Sizes(sizes.begin(), sizes.end());
}

/// Sizes of the parts into which this rank splits x; by default split_sizes().
Sizes cut_sizes(const Tensor& x, int64_t dim, std::span<const int64_t> sizes, const ProcessGroup& group,
                const char* operation) {
  if (sizes.empty()) return split_sizes(x.size(dim), group.size());
  auto parts = checked_sizes(sizes, group, operation);
  const int64_t sum = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  TORCH_CHECK_VALUE(sum == x.size(dim), operation, ": size of dim ", dim, " is ", x.size(dim),
                    ", wanted the sum of sizes, ", sum);
  return parts;
}

/// Sizes of the ranks' own parts along `dim`; exchanged if `sizes` is empty.
Sizes brought_sizes(const Tensor& x, int64_t dim, std::span<const int64_t> sizes, ProcessGroup& group,
                    const char* operation, flight::Where where) {
  if (sizes.empty()) return gather_numbers(x.size(dim), group, where);
  auto parts = checked_sizes(sizes, group, operation);
  TORCH_CHECK_VALUE(parts[group.rank()] == x.size(dim), operation, ": size of dim ", dim, " is ", x.size(dim),
                    ", wanted ", parts[group.rank()], " as told for rank ", group.rank());
  return parts;
}

void check_even_parts(const Tensor& x, const ProcessGroup& group, const char* operation) {
  TORCH_CHECK_VALUE(x.is_contiguous(), operation, ": tensor is not contiguous");
  TORCH_CHECK_VALUE(x.dim() > 0 && x.size(0) % group.size() == 0, operation, ": tensor has sizes ", x.sizes(),
                    ", wanted an equal part of each of the ", group.size(), " ranks along dim 0");
}

PlanPointer plan_of(const Tensor& x, ProcessGroup& group, flight::Where where, int64_t dim = 0) {
  auto plan = c10::make_intrusive<Plan>(group, where);
  plan->shape = x.sizes().vec();
  plan->dim = dim;
  return plan;
}

Handle begin_broadcast(const Tensor& x, int root, ProcessGroup& group, flight::Where where, bool later) {
  check_root(root, group, "broadcast");
  if (group.size() == 1) return finished(x);
  auto plan = plan_of(x, group, where);
  plan->root = root;
  return detail::begin<BroadcastOp>(x, plan, later);
}

Handle begin_reduce_sum(const Tensor& x, int root, ProcessGroup& group, flight::Where where, bool later) {
  check_root(root, group, "reduce_sum");
  if (group.size() == 1) return finished(x);
  auto plan = plan_of(x, group, where);
  plan->root = root;
  return detail::begin<ReduceSumOp>(x, plan, later);
}

Handle begin_all_reduce(const Tensor& x, ProcessGroup& group, Reduce op, flight::Where where, bool later) {
  if (group.size() == 1) return finished(x);
  auto plan = plan_of(x, group, where);
  plan->op = op;
  return detail::begin<AllReduceOp>(x, plan, later);
}

Handle begin_gather(const Tensor& x, int root, ProcessGroup& group, int64_t dim, std::span<const int64_t> sizes,
                    flight::Where where, bool later) {
  check_root(root, group, "gather");
  dim = checked_dim(x, dim, "gather");
  if (group.size() == 1) return finished(x);
  auto plan = plan_of(x, group, where, dim);
  plan->root = root;
  plan->sizes = brought_sizes(x, dim, sizes, group, "gather", where);
  return detail::begin<GatherOp>(x, plan, later);
}

Handle begin_scatter(const Tensor& x, int root, ProcessGroup& group, int64_t dim, std::span<const int64_t> sizes,
                     flight::Where where, bool later) {
  check_root(root, group, "scatter");
  dim = checked_dim(x, dim, "scatter");
  if (group.size() == 1) return finished(x);
  auto plan = plan_of(x, group, where, dim);
  plan->root = root;
  if (sizes.empty()) {
    const auto size = at::full({1}, x.size(dim), at::kLong);
    broadcast_(size, root, group, where);
    plan->sizes = split_sizes(size.item<int64_t>(), group.size());
  } else {
    const bool is_root = group.rank() == root;
    plan->sizes = is_root ? cut_sizes(x, dim, sizes, group, "scatter") : checked_sizes(sizes, group, "scatter");
  }
  return detail::begin<ScatterOp>(x, plan, later);
}

Handle begin_all_gather(const Tensor& x, ProcessGroup& group, int64_t dim, std::span<const int64_t> sizes,
                        flight::Where where, bool later) {
  dim = checked_dim(x, dim, "all_gather");
  if (group.size() == 1) return finished(x);
  auto plan = plan_of(x, group, where, dim);
  plan->sizes = brought_sizes(x, dim, sizes, group, "all_gather", where);
  return detail::begin<AllGatherOp>(x, plan, later);
}

Handle begin_reduce_scatter(const Tensor& x, ProcessGroup& group, int64_t dim, std::span<const int64_t> sizes,
                            flight::Where where, bool later) {
  dim = checked_dim(x, dim, "reduce_scatter");
  auto plan = plan_of(x, group, where, dim);
  plan->sizes = cut_sizes(x, dim, sizes, group, "reduce_scatter");
  if (group.size() == 1) return finished(x);
  return detail::begin<ReduceScatterOp>(x, plan, later);
}

/// What each rank sends to this one: entry `rank` of each rank's list.
Sizes told_sizes(const Sizes& sent, ProcessGroup& group, flight::Where where) {
  const auto ones = Sizes(group.size(), 1);
  const auto lists = at::tensor(sent, at::kLong);
  const auto told = detail::start_all_to_all(lists, {group, where}, ones, ones).wait();
  return Sizes(told.const_data_ptr<int64_t>(), told.const_data_ptr<int64_t>() + told.numel());
}

Handle begin_all_to_all(const Tensor& x, ProcessGroup& group, int64_t dim, std::span<const int64_t> sent,
                        std::span<const int64_t> received, flight::Where where, bool later) {
  dim = checked_dim(x, dim, "all_to_all");
  auto plan = plan_of(x, group, where, dim);
  plan->sizes = cut_sizes(x, dim, sent, group, "all_to_all");
  if (group.size() == 1) return finished(x);
  plan->received =
      received.empty() ? told_sizes(plan->sizes, group, where) : checked_sizes(received, group, "all_to_all");
  return detail::begin<AllToAllOp>(x, plan, later);
}

}  // namespace

Tensor broadcast(const Tensor& x, int root, ProcessGroup& group, flight::Where where) {
  return begin_broadcast(x, root, group, where, false).wait();
}
Handle broadcast_async(const Tensor& x, int root, ProcessGroup& group, flight::Where where) {
  return begin_broadcast(x, root, group, where, true);
}

Tensor reduce_sum(const Tensor& x, int root, ProcessGroup& group, flight::Where where) {
  return begin_reduce_sum(x, root, group, where, false).wait();
}
Handle reduce_sum_async(const Tensor& x, int root, ProcessGroup& group, flight::Where where) {
  return begin_reduce_sum(x, root, group, where, true);
}

Tensor all_reduce(const Tensor& x, ProcessGroup& group, Reduce op, flight::Where where) {
  const auto takes = op == Reduce::max || op == Reduce::min ? Along::varying : Along::partial;
  return told("all_reduce", group, x, takes, Along::replicated,
              [&] { return begin_all_reduce(x, group, op, where, false).wait(); });
}
Handle all_reduce_async(const Tensor& x, ProcessGroup& group, Reduce op, flight::Where where) {
  return begin_all_reduce(x, group, op, where, true);
}

Tensor gather(const Tensor& x, int root, ProcessGroup& group, int64_t dim, std::span<const int64_t> sizes,
              flight::Where where) {
  return begin_gather(x, root, group, dim, sizes, where, false).wait();
}
Handle gather_async(const Tensor& x, int root, ProcessGroup& group, int64_t dim, std::span<const int64_t> sizes,
                    flight::Where where) {
  return begin_gather(x, root, group, dim, sizes, where, true);
}

Tensor scatter(const Tensor& x, int root, ProcessGroup& group, int64_t dim, std::span<const int64_t> sizes,
               flight::Where where) {
  return begin_scatter(x, root, group, dim, sizes, where, false).wait();
}
Handle scatter_async(const Tensor& x, int root, ProcessGroup& group, int64_t dim, std::span<const int64_t> sizes,
                     flight::Where where) {
  return begin_scatter(x, root, group, dim, sizes, where, true);
}

Tensor all_gather(const Tensor& x, ProcessGroup& group, int64_t dim, std::span<const int64_t> sizes,
                  flight::Where where) {
  return told("all_gather", group, x, Along::varying, Along::replicated,
              [&] { return begin_all_gather(x, group, dim, sizes, where, false).wait(); });
}
Handle all_gather_async(const Tensor& x, ProcessGroup& group, int64_t dim, std::span<const int64_t> sizes,
                        flight::Where where) {
  return begin_all_gather(x, group, dim, sizes, where, true);
}

Tensor reduce_scatter(const Tensor& x, ProcessGroup& group, int64_t dim, std::span<const int64_t> sizes,
                      flight::Where where) {
  return told("reduce_scatter", group, x, Along::partial, Along::varying,
              [&] { return begin_reduce_scatter(x, group, dim, sizes, where, false).wait(); });
}
Handle reduce_scatter_async(const Tensor& x, ProcessGroup& group, int64_t dim, std::span<const int64_t> sizes,
                            flight::Where where) {
  return begin_reduce_scatter(x, group, dim, sizes, where, true);
}

Tensor all_to_all(const Tensor& x, ProcessGroup& group, int64_t dim, std::span<const int64_t> sent,
                  std::span<const int64_t> received, flight::Where where) {
  return told("all_to_all", group, x, Along::varying, Along::varying,
              [&] { return begin_all_to_all(x, group, dim, sent, received, where, false).wait(); });
}
Handle all_to_all_async(const Tensor& x, ProcessGroup& group, int64_t dim, std::span<const int64_t> sent,
                        std::span<const int64_t> received, flight::Where where) {
  return begin_all_to_all(x, group, dim, sent, received, where, true);
}

Tensor all_to_all(const Tensor& x, ProcessGroup& group, int64_t split_dim, int64_t concat_dim,
                  std::span<const int64_t> split_sizes, std::span<const int64_t> concat_sizes, flight::Where where) {
  split_dim = checked_dim(x, split_dim, "all_to_all");
  concat_dim = checked_dim(x, concat_dim, "all_to_all");
  TORCH_CHECK_VALUE(split_dim != concat_dim, "all_to_all: split_dim and concat_dim are both ", split_dim,
                    ", wanted two dims");
  auto plan = plan_of(x, group, where, split_dim);
  plan->other_dim = concat_dim;
  plan->sizes = cut_sizes(x, split_dim, split_sizes, group, "all_to_all");
  if (group.size() == 1) return x;
  plan->received = brought_sizes(x, concat_dim, concat_sizes, group, "all_to_all", where);
  return told("all_to_all", group, x, Along::varying, Along::varying,
              [&] { return detail::begin<TransposeOp>(x, plan, false).wait(); });
}

void all_reduce_(Tensor x, ProcessGroup& group, Reduce op, flight::Where where) {
  TORCH_CHECK_VALUE(x.is_contiguous(), "all_reduce: tensor is not contiguous");
  const at::NoGradGuard no_grad;
  if (group.size() > 1) detail::start_all_reduce(std::move(x), {group, where}, op).wait();
}

void broadcast_(Tensor x, int root, ProcessGroup& group, flight::Where where) {
  check_root(root, group, "broadcast");
  TORCH_CHECK_VALUE(x.is_contiguous(), "broadcast: tensor is not contiguous");
  const at::NoGradGuard no_grad;
  if (group.size() > 1) detail::start_broadcast(std::move(x), {group, where}, root).wait();
}

void all_gather_(Tensor x, ProcessGroup& group, flight::Where where) {
  check_even_parts(x, group, "all_gather");
  const at::NoGradGuard no_grad;
  if (group.size() > 1) detail::start_all_gather_in_place(std::move(x), {group, where}).wait();
}

void reduce_scatter_(Tensor x, ProcessGroup& group, flight::Where where) {
  check_even_parts(x, group, "reduce_scatter");
  const at::NoGradGuard no_grad;
  if (group.size() > 1) detail::start_reduce_scatter_in_place(std::move(x), {group, where}).wait();
}

void barrier(ProcessGroup& group, flight::Where where) {
  if (group.size() > 1) detail::start_barrier({group, where}).wait();
}

bool any_rank(bool own, ProcessGroup& group, flight::Where where) {
  auto flag = at::full({1}, own ? 1 : 0, at::kInt);
  all_reduce_(flag, group, Reduce::max, where);
  return flag.item<int>() != 0;
}

void backward_without_loss(const std::vector<Tensor>& outputs) {
  std::vector<Tensor> reached, zeros;
  for (const auto& output : outputs) {
    if (!output.requires_grad()) continue;
    reached.push_back(output);
    zeros.push_back(at::zeros_like(output));
  }
  if (!reached.empty()) torch::autograd::backward(reached, zeros);
}

}  // namespace tandem::comm
