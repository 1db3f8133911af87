#include "tests/comm/operator_cases.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "tandem/comm/collectives.h"
#include "tandem/comm/point_to_point.h"
#include "tandem/comm/split.h"

namespace tandem::test {
namespace {

using comm::ProcessGroup;
using comm::Reduce;

int64_t whole(int64_t rows, int, int) { return rows; }
int64_t part(int64_t rows, int rank, int size) { return comm::split_sizes(rows, size)[rank]; }
int64_t rows_between(int from, int to) { return (2 * from + 3 * to + 1) % 4; }

template <Reduce op>
Tensor reduced(const Tensor& x, ProcessGroup& group, int) {
  return comm::all_reduce(x, group, op);
}

Tensor exchanged(const Tensor& x, ProcessGroup& group, int) {
  std::vector<int64_t> sent, received;
  for (int peer = 0; peer < group.size(); ++peer) {
    sent.push_back(rows_between(group.rank(), peer));
    received.push_back(rows_between(peer, group.rank()));
  }
  return comm::all_to_all(x, group, 0, sent, received);
}

int64_t rows_exchanged(int64_t, int rank, int size) {
  int64_t rows = 0;
  for (int to = 0; to < size; ++to) rows += rows_between(rank, to);
  return rows;
}

/// To the next rank, from the one before. The anchor puts what was received into the graph of x.
Tensor sent_on(const Tensor& x, ProcessGroup& group, int) {
  if (group.size() == 1) return x * 1;
  auto sending = comm::send_async(x, (group.rank() + 1) % group.size(), group);
  const auto received = comm::recv((group.rank() + group.size() - 1) % group.size(), group, 0, 0 * x.sum());
  return received + sending.wait();
}

bool differ(double a, double b) { return !(std::abs(a - b) <= 1e-12 * (1 + std::abs(a))); }

double product(const Tensor& a, const Tensor& b) { return (a * b).sum().item<double>(); }

}  // namespace

const std::vector<OperatorCase>& operator_cases() {
  static const std::vector<OperatorCase> cases = {
      {"broadcast", true, true, whole,
       [](const Tensor& x, ProcessGroup& group, int root) { return comm::broadcast(x, root, group); }},
      {"reduce_sum", true, true, whole,
       [](const Tensor& x, ProcessGroup& group, int root) { return comm::reduce_sum(x, root, group); }},
      {"all_reduce", false, true, whole, reduced<Reduce::sum>},
      {"all_reduce mean", false, true, whole, reduced<Reduce::mean>},
      {"all_reduce max", false, false, whole, reduced<Reduce::max>},
      {"all_reduce min", false, false, whole, reduced<Reduce::min>},
      {"gather", true, true, part,
       [](const Tensor& x, ProcessGroup& group, int root) { return comm::gather(x, root, group); }},
      {"scatter", true, true, whole,
       [](const Tensor& x, ProcessGroup& group, int root) { return comm::scatter(x, root, group); }},
      {"all_gather", false, true, part,
       [](const Tensor& x, ProcessGroup& group, int) { return comm::all_gather(x, group); }},
      {"reduce_scatter", false, true, whole,
       [](const Tensor& x, ProcessGroup& group, int) { return comm::reduce_scatter(x, group); }},
      {"all_to_all", false, true, rows_exchanged, exchanged},
      {"send and recv", false, true, [](int64_t rows, int rank, int) { return rows + rank; }, sent_on},
  };
  return cases;
}

Tensor input_of(const OperatorCase& one, int64_t rows, int rank, int size) {
  const int64_t count = one.rows_of(rows, rank, size);
  return at::sin(at::arange(count * 3, at::kDouble) * 1.7 + 3.1 * rank + 0.5).reshape({count, 3});
}

Derivatives derivatives_of(const OperatorCase& one, const Tensor& x_value, const Tensor& g_value, const Tensor& h,
                           ProcessGroup& group, int root) {
  const auto x = x_value.detach().clone().requires_grad_(), g = g_value.detach().clone().requires_grad_();
  const auto y = one.apply(x, group, root);
  const auto gradient = torch::autograd::grad({y}, {x}, {g}, true, true)[0];
  gradient.backward(h);  // the whole graph, and not grad(): a message's gradient is a node of its own
  const auto or_zeros = [](const Tensor& t, const Tensor& like) { return t.defined() ? t : at::zeros_like(like); };
  return {y.detach(), gradient.detach(), or_zeros(x.grad(), x), or_zeros(g.grad(), g)};
}

std::string adjoint_faults(ProcessGroup& group) {
  std::string faults;
  for (const auto& one : operator_cases()) {
    for (const int64_t rows : {7, 1}) {
      for (int root = 0; one.is_linear && root < (one.has_root ? group.size() : 1); ++root) {
        const auto x = input_of(one, rows, group.rank(), group.size()).requires_grad_();
        const auto value = one.apply(x, group, root);
        const auto y = at::cos(at::arange(value.numel(), at::kDouble) * 0.9 + group.rank()).reshape(value.sizes());
        const auto gradient = torch::autograd::grad({value}, {x}, {y})[0];
        const auto sums = at::tensor({product(value.detach(), y), product(x.detach(), gradient)}, at::kDouble);
        comm::all_reduce_(sums, group);
        const double left = sums[0].item<double>(), right = sums[1].item<double>();
        if (differ(left, right)) {
          faults += one.name + " of " + std::to_string(rows) + " rows, root " + std::to_string(root) + ": " +
                    std::to_string(left) + " is not " + std::to_string(right) + "\n";
        }
      }
    }
  }
  return faults;
}

}  // namespace tandem::test
