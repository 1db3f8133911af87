#include "tandem/comm/collectives.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <numeric>

#include "tandem/comm/split.h"

namespace tandem::comm {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Sizes = std::vector<int64_t>;

// The group must outlive the graph: it belongs to the caller, as the model does.
ProcessGroup& group_of(AutogradContext* context) {
  return *reinterpret_cast<ProcessGroup*>(context->saved_data["group"].toInt());
}

void remember(AutogradContext* context, ProcessGroup& group) {
  context->saved_data["group"] = reinterpret_cast<int64_t>(&group);
}

c10d::ReduceOp to_c10d(Reduce op) {
  switch (op) {
    case Reduce::mean:
      return c10d::ReduceOp::AVG;
    case Reduce::max:
      return c10d::ReduceOp::MAX;
    case Reduce::min:
      return c10d::ReduceOp::MIN;
    default:
      return c10d::ReduceOp::SUM;
  }
}

void reduce_in_place(Tensor x, ProcessGroup& group, Reduce op) {
  if (group.size() == 1) return;
  group.meter().add("all_reduce", all_reduce_bytes(x, group));
  // Gloo knows no mean.
  const bool divide = op == Reduce::mean;
  std::vector<Tensor> tensors = {x};
  group.wait(group.handle()->allreduce(tensors, {to_c10d(divide ? Reduce::sum : op)}), "all_reduce");
  if (divide) x.div_(group.size());
}

Sizes exchange_sizes(int64_t own, ProcessGroup& group) {
  auto mine = at::full({1}, own, at::kLong);
  auto all = at::empty({group.size()}, at::kLong);
  group.meter().add("all_gather", (group.size() - 1) * 8);
  group.wait(group.handle()->_allgather_base(all, mine), "all_gather");
  return Sizes(all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + group.size());
}

/// Along dim 0, x contiguous. Uneven parts travel padded to the largest and are packed afterwards.
Tensor gather_rows(const Tensor& x, ProcessGroup& group, const Sizes& sizes) {
  const int64_t largest = *std::max_element(sizes.begin(), sizes.end());
  const bool even = std::all_of(sizes.begin(), sizes.end(), [&](int64_t n) { return n == largest; });
  auto shape = x.sizes().vec();
  Tensor padded = x;
  if (x.size(0) != largest) {
    shape[0] = largest;
    padded = at::zeros(shape, x.options());
    padded.narrow(0, 0, x.size(0)).copy_(x);
  }
  shape[0] = largest * group.size();
  auto all = at::empty(shape, x.options());
  group.meter().add("all_gather", (group.size() - 1) * static_cast<int64_t>(x.nbytes()));
  group.wait(group.handle()->_allgather_base(all, padded), "all_gather");
  if (even) return all;
  std::vector<Tensor> parts;
  for (int rank = 0; rank < group.size(); ++rank) parts.push_back(all.narrow(0, rank * largest, sizes[rank]));
  return at::cat(parts, 0);
}

/// Sends rows of x by `sent`, receives by `received`; both count rows of dim 0.
Tensor exchange_rows(const Tensor& x, ProcessGroup& group, Sizes sent, Sizes received, const char* name) {
  auto shape = x.sizes().vec();
  shape[0] = std::accumulate(received.begin(), received.end(), int64_t{0});
  auto result = at::empty(shape, x.options());
  auto input = x;
  group.wait(group.handle()->alltoall_base(result, input, received, sent), name);
  return result;
}

/// Gloo's own reduce_scatter moves twice the bytes: here all_to_all, then a sum in rank order.
Tensor scatter_sum_rows(const Tensor& x, ProcessGroup& group, const Sizes& sizes) {
  const int64_t own = sizes[group.rank()];
  const int64_t row_bytes = x.size(0) == 0 ? 0 : static_cast<int64_t>(x.nbytes()) / x.size(0);
  group.meter().add("reduce_scatter", static_cast<int64_t>(x.nbytes()) - own * row_bytes);
  const auto parts = exchange_rows(x, group, sizes, Sizes(group.size(), own), "reduce_scatter");
  auto sum = parts.narrow(0, 0, own).clone();
  for (int rank = 1; rank < group.size(); ++rank) sum.add_(parts.narrow(0, rank * own, own));
  return sum;
}

/// Runs a function on dim 0 for tensors whose parts lie along another dim.
template <class OnRows>
Tensor along(const Tensor& x, int64_t dim, OnRows on_rows) {
  dim = at::maybe_wrap_dim(dim, x.dim());
  if (dim == 0) return on_rows(x.contiguous());
  return on_rows(x.transpose(0, dim).contiguous()).transpose(0, dim).contiguous();
}

struct AllReduce : torch::autograd::Function<AllReduce> {
  static Tensor forward(AutogradContext* context, const Tensor& x, ProcessGroup* group, Reduce op) {
    remember(context, *group);
    context->saved_data["op"] = static_cast<int64_t>(op);
    auto result = x.contiguous().clone();
    reduce_in_place(result, *group, op);
    return result;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto op = static_cast<Reduce>(context->saved_data["op"].toInt());
    TORCH_CHECK_VALUE(op == Reduce::sum || op == Reduce::mean, "all_reduce: max and min have no gradient");
    return {all_reduce(gradients[0], group_of(context), op), {}, {}};
  }
};

struct AllGather : torch::autograd::Function<AllGather> {
  static Tensor forward(AutogradContext* context, const Tensor& x, ProcessGroup* group, int64_t dim, Sizes sizes) {
    remember(context, *group);
    context->saved_data["dim"] = dim;
    context->saved_data["sizes"] = sizes;
    return along(x, dim, [&](const Tensor& rows) { return gather_rows(rows, *group, sizes); });
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto sizes = context->saved_data["sizes"].toIntVector();
    return {reduce_scatter(gradients[0], group_of(context), context->saved_data["dim"].toInt(), sizes), {}, {}, {}};
  }
};

struct ReduceScatter : torch::autograd::Function<ReduceScatter> {
  static Tensor forward(AutogradContext* context, const Tensor& x, ProcessGroup* group, int64_t dim, Sizes sizes) {
    remember(context, *group);
    context->saved_data["dim"] = dim;
    context->saved_data["sizes"] = sizes;
    return along(x, dim, [&](const Tensor& rows) { return scatter_sum_rows(rows, *group, sizes); });
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto sizes = context->saved_data["sizes"].toIntVector();
    return {all_gather(gradients[0], group_of(context), context->saved_data["dim"].toInt(), sizes), {}, {}, {}};
  }
};

struct Broadcast : torch::autograd::Function<Broadcast> {
  static Tensor forward(AutogradContext* context, const Tensor& x, int root, ProcessGroup* group) {
    remember(context, *group);
    context->saved_data["root"] = static_cast<int64_t>(root);
    auto result = x.contiguous().clone();
    broadcast_(result, root, *group);
    return result;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    auto& group = group_of(context);
    auto sum = all_reduce(gradients[0], group);
    const bool is_root = context->saved_data["root"].toInt() == group.rank();
    return {is_root ? sum : at::zeros_like(sum), {}, {}};
  }
};

Sizes checked_sizes(std::span<const int64_t> sizes, ProcessGroup& group, const char* operation) {
  TORCH_CHECK_VALUE(static_cast<int>(sizes.size()) == group.size(), operation, ": sizes has ", sizes.size(),
                    " entries, wanted one a rank, ", group.size());
  return Sizes(sizes.begin(), sizes.end());
}

void check_root(int root, ProcessGroup& group, const char* operation) {
  TORCH_CHECK_INDEX(root >= 0 && root < group.size(), operation, ": root is ", root, ", wanted 0..", group.size() - 1);
}

}  // namespace

Tensor all_reduce(const Tensor& x, ProcessGroup& group, Reduce op) {
  if (group.size() == 1) return x;
  return AllReduce::apply(x, &group, op);
}

int64_t all_reduce_bytes(const Tensor& x, ProcessGroup& group) {
  const auto [begin, end] = split_range(x.numel(), group.size(), group.rank());
  const int64_t own = (end - begin) * x.element_size();
  return static_cast<int64_t>(x.nbytes()) - own + (group.size() - 1) * own;
}

void all_reduce_(Tensor x, ProcessGroup& group, Reduce op) {
  TORCH_CHECK_VALUE(x.is_contiguous(), "all_reduce: tensor is not contiguous");
  const at::NoGradGuard no_grad;
  reduce_in_place(std::move(x), group, op);
}

Tensor all_gather(const Tensor& x, ProcessGroup& group, int64_t dim, std::span<const int64_t> sizes) {
  TORCH_CHECK_VALUE(x.dim() > 0, "all_gather: tensor has no dims, wanted 1 or more");
  dim = at::maybe_wrap_dim(dim, x.dim());
  const auto known = sizes.empty() ? Sizes() : checked_sizes(sizes, group, "all_gather");
  TORCH_CHECK_VALUE(known.empty() || known[group.rank()] == x.size(dim), "all_gather: size of dim ", dim, " is ",
                    x.size(dim), ", wanted ", known.empty() ? 0 : known[group.rank()], " as told for rank ",
                    group.rank());
  if (group.size() == 1) return x;
  return AllGather::apply(x, &group, dim, known.empty() ? exchange_sizes(x.size(dim), group) : known);
}

Tensor reduce_scatter(const Tensor& x, ProcessGroup& group, int64_t dim, std::span<const int64_t> sizes) {
  TORCH_CHECK_VALUE(x.dim() > 0, "reduce_scatter: tensor has no dims, wanted 1 or more");
  dim = at::maybe_wrap_dim(dim, x.dim());
  const auto parts =
      sizes.empty() ? split_sizes(x.size(dim), group.size()) : checked_sizes(sizes, group, "reduce_scatter");
  const int64_t sum = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  TORCH_CHECK_VALUE(sum == x.size(dim), "reduce_scatter: size of dim ", dim, " is ", x.size(dim),
                    ", wanted the sum of sizes, ", sum);
  if (group.size() == 1) return x;
  return ReduceScatter::apply(x, &group, dim, parts);
}

Tensor broadcast(const Tensor& x, int root, ProcessGroup& group) {
  check_root(root, group, "broadcast");
  if (group.size() == 1) return x;
  return Broadcast::apply(x, root, &group);
}

void broadcast_(Tensor x, int root, ProcessGroup& group) {
  check_root(root, group, "broadcast");
  TORCH_CHECK_VALUE(x.is_contiguous(), "broadcast: tensor is not contiguous");
  if (group.size() == 1) return;
  const at::NoGradGuard no_grad;
  group.meter().add("broadcast", group.rank() == root ? static_cast<int64_t>(x.nbytes()) : 0);
  std::vector<Tensor> tensors = {x};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  group.wait(group.handle()->broadcast(tensors, options), "broadcast");
}

Tensor gather(const Tensor& x, int root, ProcessGroup& group, std::span<const int64_t> sizes) {
  check_root(root, group, "gather");
  const auto parts = checked_sizes(sizes, group, "gather");
  if (group.size() == 1) return x;
  const bool is_root = group.rank() == root;
  group.meter().add("gather", is_root ? 0 : static_cast<int64_t>(x.nbytes()));
  Sizes sent(group.size(), 0);
  sent[root] = x.size(0);
  return exchange_rows(x.contiguous(), group, sent, is_root ? parts : Sizes(group.size(), 0), "gather");
}

Tensor scatter(const Tensor& x, int root, ProcessGroup& group, std::span<const int64_t> sizes) {
  check_root(root, group, "scatter");
  const auto parts = checked_sizes(sizes, group, "scatter");
  if (group.size() == 1) return x;
  const bool is_root = group.rank() == root;
  Sizes received(group.size(), 0);
  received[root] = parts[group.rank()];
  const auto input = is_root ? x.contiguous() : x.narrow(0, 0, 0).contiguous();
  const int64_t row_bytes = is_root && x.size(0) > 0 ? static_cast<int64_t>(x.nbytes()) / x.size(0) : 0;
  group.meter().add("scatter", is_root ? static_cast<int64_t>(x.nbytes()) - parts[root] * row_bytes : 0);
  return exchange_rows(input, group, is_root ? parts : Sizes(group.size(), 0), received, "scatter");
}

void barrier(ProcessGroup& group) {
  if (group.size() == 1) return;
  group.meter().add("barrier", 0);
  group.wait(group.handle()->barrier(), "barrier");
}

}  // namespace tandem::comm
