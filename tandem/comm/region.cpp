#include "tandem/comm/region.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>

#include "tandem/base/context.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/detail/told.h"
#include "tandem/comm/detail/transfer.h"
#include "tandem/comm/split.h"

namespace tandem::comm {
namespace {

using detail::checked_dim;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Region : torch::CustomClassHolder {
  Region(ProcessGroup& of_group, int64_t of_dim, std::vector<int64_t> of_parts, flight::Where of_where)
      : group(of_group), dim(of_dim), sizes(std::move(of_parts)), where(of_where) {}

  int64_t own() const { return sizes[group.rank()]; }

  ProcessGroup& group;
  int64_t dim;
  std::vector<int64_t> sizes;  // of the ranks' parts, where there are any
  flight::Where where;
};
using RegionPointer = c10::intrusive_ptr<Region>;

/// `Way` defines the forward operation and, for the gradient, the operator in the opposite direction.
template <class Way>
struct RegionNode : torch::autograd::Function<RegionNode<Way>> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const RegionPointer& region) {
    context->saved_data["region"] = c10::IValue::make_capsule(region);
    return Way::forward(x.detach(), *region);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const PhaseScope phase(Phase::backward);
    const auto capsule = context->saved_data["region"].toCapsule();
    return {Way::gradient(gradients[0], static_cast<const Region&>(*capsule)), {}};
  }
};

struct Copy {
  static Tensor forward(const Tensor& x, const Region&) { return x.view_as(x); }
  static Tensor gradient(const Tensor& g, const Region& region) {
    return reduce_from_region(g, region.group, region.where);
  }
};

struct ReduceFrom {
  static Tensor forward(const Tensor& x, const Region& region) {
    return all_reduce(x, region.group, Reduce::sum, region.where);
  }
  static Tensor gradient(const Tensor& g, const Region& region) {
    return copy_to_region(g, region.group, region.where);
  }
};

struct ScatterTo {
  static Tensor forward(const Tensor& x, const Region& region) {
    const auto first = std::accumulate(region.sizes.begin(), region.sizes.begin() + region.group.rank(), int64_t{0});
    return x.narrow(region.dim, first, region.own());
  }
  static Tensor gradient(const Tensor& g, const Region& region) {
    return gather_from_region(g, region.group, region.dim, region.sizes, region.where);
  }
};

struct GatherFrom {
  static Tensor forward(const Tensor& x, const Region& region) {
    return all_gather(x, region.group, region.dim, region.sizes, region.where);
  }
  static Tensor gradient(const Tensor& g, const Region& region) {
    return scatter_to_region(g, region.group, region.dim, region.sizes, region.where);
  }
};

struct Kinds {
  const char* operation;
  Along takes, gives;
};

template <class Way>
Tensor apply(const Kinds& kinds, const Tensor& x, ProcessGroup& group, flight::Where where, int64_t dim = 0,
             std::vector<int64_t> sizes = {}) {
  return detail::told(kinds.operation, group, x, kinds.takes, kinds.gives, [&] {
    return RegionNode<Way>::apply(x, c10::make_intrusive<Region>(group, dim, std::move(sizes), where));
  });
}

void check_number(const char* operation, const std::vector<int64_t>& sizes, const ProcessGroup& group) {
  TORCH_CHECK_VALUE(std::ssize(sizes) == group.size(), operation, ": ", sizes.size(), " parts, wanted ", group.size(),
                    ", one a rank");
}

}  // namespace

Tensor copy_to_region(const Tensor& x, ProcessGroup& group, flight::Where where) {
  if (group.size() == 1) return x;
  return apply<Copy>({"copy_to_region", Along::invariant, Along::replicated}, x, group, where);
}

Tensor reduce_from_region(const Tensor& x, ProcessGroup& group, flight::Where where) {
  if (group.size() == 1) return x;
  return apply<ReduceFrom>({"reduce_from_region", Along::partial, Along::invariant}, x, group, where);
}

Tensor scatter_to_region(const Tensor& x, ProcessGroup& group, int64_t dim, std::span<const int64_t> sizes,
                         flight::Where where) {
  constexpr auto kName = "scatter_to_region";
  dim = checked_dim(x, dim, kName);
  if (group.size() == 1) return x;
  auto parts = sizes.empty() ? split_sizes(x.size(dim), group.size()) : std::vector(sizes.begin(), sizes.end());
  check_number(kName, parts, group);
  const auto total = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  TORCH_CHECK_VALUE(total == x.size(dim), kName, ": size of dim ", dim, " is ", x.size(dim), ", wanted ", total,
                    ", the sum of the parts");
  return apply<ScatterTo>({kName, Along::invariant, Along::varying}, x, group, where, dim, std::move(parts));
}

Tensor gather_from_region(const Tensor& x, ProcessGroup& group, int64_t dim, std::span<const int64_t> sizes,
                          flight::Where where) {
  constexpr auto kName = "gather_from_region";
  dim = checked_dim(x, dim, kName);
  if (group.size() == 1) return x;
  std::vector<int64_t> parts(sizes.begin(), sizes.end());
  if (sizes.empty()) parts = split_sizes(reduce_number(x.size(dim), Reduce::sum, group, where), group.size());
  check_number(kName, parts, group);
  TORCH_CHECK_VALUE(parts[group.rank()] == x.size(dim), kName, ": size of dim ", dim, " is ", x.size(dim), ", wanted ",
                    parts[group.rank()], ", this rank's part", sizes.empty() ? " by split_sizes" : "");
  return apply<GatherFrom>({kName, Along::varying, Along::invariant}, x, group, where, dim, std::move(parts));
}

}  // namespace tandem::comm
