#include "tandem/comm/region.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tandem/base/context.h"
#include "tandem/comm/detail/transfer.h"
#include "tandem/comm/split.h"

namespace tandem::comm {
namespace {

using detail::checked_dim;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Region : torch::CustomClassHolder {
  Region(ProcessGroup& of_group, int64_t of_dim, flight::Where of_where)
      : group(of_group), dim(of_dim), where(of_where) {}

  ProcessGroup& group;
  int64_t dim;
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
    const auto [begin, end] = split_range(x.size(region.dim), region.group.size(), region.group.rank());
    return x.slice(region.dim, begin, end).contiguous();
  }
  static Tensor gradient(const Tensor& g, const Region& region) {
    return gather_from_region(g, region.group, region.dim, region.where);
  }
};

struct GatherFrom {
  static Tensor forward(const Tensor& x, const Region& region) {
    const auto whole = all_gather(x, region.group, region.dim, {}, region.where);
    const auto [begin, end] = split_range(whole.size(region.dim), region.group.size(), region.group.rank());
    TORCH_CHECK_VALUE(end - begin == x.size(region.dim), "gather_from_region: size of dim ", region.dim, " is ",
                      x.size(region.dim), ", wanted ", end - begin, ", this rank's part by split_sizes");
    return whole;
  }
  static Tensor gradient(const Tensor& g, const Region& region) {
    return scatter_to_region(g, region.group, region.dim, region.where);
  }
};

template <class Way>
Tensor apply(const Tensor& x, ProcessGroup& group, int64_t dim, flight::Where where) {
  if (group.size() == 1) return x;
  return RegionNode<Way>::apply(x, c10::make_intrusive<Region>(group, dim, where));
}

}  // namespace

Tensor copy_to_region(const Tensor& x, ProcessGroup& group, flight::Where where) {
  return apply<Copy>(x, group, 0, where);
}

Tensor reduce_from_region(const Tensor& x, ProcessGroup& group, flight::Where where) {
  return apply<ReduceFrom>(x, group, 0, where);
}

Tensor scatter_to_region(const Tensor& x, ProcessGroup& group, int64_t dim, flight::Where where) {
  return apply<ScatterTo>(x, group, checked_dim(x, dim, "scatter_to_region"), where);
}

Tensor gather_from_region(const Tensor& x, ProcessGroup& group, int64_t dim, flight::Where where) {
  return apply<GatherFrom>(x, group, checked_dim(x, dim, "gather_from_region"), where);
}

}  // namespace tandem::comm
