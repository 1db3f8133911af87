#include "tandem/comm/region.h"

#include <torch/csrc/autograd/autograd.h>

#include "tandem/comm/collectives.h"
#include "tandem/layers/hybrid.h"
#include "tests/layers/layer_cases.h"

namespace tandem::layers {
namespace {

using namespace test_layers;

constexpr int64_t kChannels = 7, kSamples = 8;

/// The sum over the ranks of <a, b>.
double product(const Tensor& a, const Tensor& b, comm::ProcessGroup& group) {
  return comm::all_reduce((a * b).sum(), group).item<double>();
}

/// <A x, y> = <x, A' y>, summed over the ranks. `shares`: what a pair of values counts where each rank holds the same.
void expect_adjoint(const std::function<Tensor(const Tensor&)>& operation, const Tensor& x, comm::ProcessGroup& group,
                    bool is_invariant_in, bool is_invariant_out) {
  const auto input = x.clone().requires_grad_();
  const auto y = operation(input);
  auto other = numbers(y.sizes(), 0.5 + (is_invariant_out ? 0 : group.rank()));
  const auto gradient = torch::autograd::grad({y}, {input}, {other})[0];
  const double in = is_invariant_in ? 1.0 / group.size() : 1, out = is_invariant_out ? 1.0 / group.size() : 1;
  EXPECT_NEAR(product(y.detach(), other, group) * out, product(input.detach(), gradient, group) * in, 1e-10);
}

TEST(Region, EachGradientIsTheAdjoint) {
  on_ranks([](comm::ProcessGroup& group) {
    const Division parts(group, kChannels);
    const auto same = numbers({3, kChannels}, 0), own = numbers({3, parts.count()}, group.rank());
    const auto term = numbers({3, kChannels}, group.rank());
    expect_adjoint([&](const Tensor& x) { return comm::copy_to_region(x, group); }, same, group, true, false);
    expect_adjoint([&](const Tensor& x) { return comm::reduce_from_region(x, group); }, term, group, false, true);
    expect_adjoint([&](const Tensor& x) { return comm::gather_from_region(x, group, 1, parts.counts()); }, own, group,
                   false, true);
    expect_adjoint([&](const Tensor& x) { return comm::scatter_to_region(x, group, -1, parts.counts()); }, same, group,
                   true, false);
  });
}

TEST(Hybrid, EachIsTheOthersInverseAndAdjoint) {
  on_ranks([](comm::ProcessGroup& group) {
    const Division channels(group, kChannels), samples(group, kSamples);
    const auto all = numbers({kSamples, kChannels, 2}, 0);
    const auto own = all.narrow(0, samples.first(), samples.count()).contiguous();
    const auto part = all.narrow(1, channels.first(), channels.count()).contiguous();
    EXPECT_TRUE(to_model_parallel(own, channels).equal(part));
    EXPECT_TRUE(to_data_parallel(part, channels).equal(own));
    expect_adjoint([&](const Tensor& x) { return to_model_parallel(x, channels); }, own, group, false, false);
    expect_adjoint([&](const Tensor& x) { return to_data_parallel(x, channels); }, part, group, false, false);
  });
}

TEST(Region, HasSecondDerivatives) {
  on_ranks([](comm::ProcessGroup& group) {
    const Division parts(group, kChannels);
    const auto x = numbers({3, kChannels}, 0).requires_grad_();
    const auto cubes =
        comm::gather_from_region(comm::scatter_to_region(x, group, 1, parts.counts()).pow(3), group, 1, parts.counts());
    const auto scaled = comm::reduce_from_region(comm::copy_to_region(x, group) * (group.rank() + 1), group);
    const double sum = group.size() * (group.size() + 1) / 2.0;
    const auto y = cubes.sum() + scaled.pow(2).sum();
    const auto first = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    EXPECT_TRUE(are_equal(first.detach(), 3 * x.detach().pow(2) + 2 * sum * sum * x.detach()));
    const auto second = torch::autograd::grad({first.sum()}, {x})[0];
    EXPECT_TRUE(are_equal(second, 6 * x.detach() + 2 * sum * sum));
  });
}

TEST(Region, WrongSizesAreRefused) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    const Division parts(group, kChannels);
    EXPECT_THROW(comm::gather_from_region(at::zeros({2, 9}), group, 1, parts.counts()), c10::ValueError);
    EXPECT_THROW(comm::scatter_to_region(at::zeros({2, 9}), group, 1, parts.counts()), c10::ValueError);
    EXPECT_THROW(comm::scatter_to_region(at::zeros({2, 9}), group, 1, std::vector<int64_t>{9}), c10::ValueError);
    EXPECT_THROW(Division(group, std::vector<int64_t>{1}), c10::ValueError);
    EXPECT_THROW(Division(group, std::vector<int64_t>{1, -1}), c10::ValueError);
  });
}

}  // namespace
}  // namespace tandem::layers
