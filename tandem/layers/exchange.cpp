#include "tandem/layers/exchange.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tandem/base/context.h"
#include "tandem/comm/collectives.h"

namespace tandem::layers {
namespace {

/// What forward and backward need besides the tensor.
struct Way : torch::CustomClassHolder {
  Way(int64_t of_dim, Division of_parts) : dim(of_dim), parts(std::move(of_parts)) {}

  int64_t dim;
  Division parts;  // of what has no dim that is divided: of nothing, for its group
};
using WayPointer = c10::intrusive_ptr<Way>;

template <class Operation>
struct Region : torch::autograd::Function<Region<Operation>> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const WayPointer& way) {
    context->saved_data["way"] = c10::IValue::make_capsule(way);
    return Operation::forward(x, *way);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const PhaseScope phase(Phase::backward);
    const auto capsule = context->saved_data["way"].toCapsule();
    auto way = c10::static_intrusive_pointer_cast<Way>(capsule);
    return {Region<typename Operation::Back>::apply(gradients[0], way), {}};
  }
};

struct Reduce;
struct Scatter;

struct Copy {
  using Back = Reduce;
  static Tensor forward(const Tensor& x, const Way&) { return x.view_as(x); }
};

struct Reduce {
  using Back = Copy;
  static Tensor forward(const Tensor& x, const Way& way) { return comm::all_reduce(x.detach(), way.parts.group()); }
};

struct Gather {
  using Back = Scatter;
  static Tensor forward(const Tensor& x, const Way& way) {
    return comm::all_gather(x.detach(), way.parts.group(), way.dim, way.parts.counts());
  }
};

struct Scatter {
  using Back = Gather;
  static Tensor forward(const Tensor& x, const Way& way) {
    return x.narrow(way.dim, way.parts.first(), way.parts.count());
  }
};

template <class Operation>
Tensor go(const Tensor& x, int64_t dim, const Division& parts) {
  if (parts.group().size() == 1) return x;
  return Region<Operation>::apply(x, c10::make_intrusive<Way>(at::maybe_wrap_dim(dim, x.dim()), parts));
}

/// The whole of x.
template <class Operation>
Tensor go(const Tensor& x, comm::ProcessGroup& group) {
  return go<Operation>(x, 0, Division(group, 0));
}

void check_size(const char* what, const Tensor& x, int64_t dim, int64_t wanted) {
  TORCH_CHECK_VALUE(x.size(dim) == wanted, what, ": dim ", dim, " has the size ", x.size(dim), ", wanted ", wanted);
}

}  // namespace

Tensor copy_to_region(const Tensor& x, comm::ProcessGroup& group) { return go<Copy>(x, group); }

Tensor reduce_from_region(const Tensor& x, comm::ProcessGroup& group) { return go<Reduce>(x, group); }

Tensor gather_from_region(const Tensor& x, int64_t dim, const Division& parts) {
  check_size("gather_from_region", x, dim, parts.count());
  return go<Gather>(x, dim, parts);
}

Tensor scatter_to_region(const Tensor& x, int64_t dim, const Division& parts) {
  check_size("scatter_to_region", x, dim, parts.total());
  return go<Scatter>(x, dim, parts);
}

}  // namespace tandem::layers
