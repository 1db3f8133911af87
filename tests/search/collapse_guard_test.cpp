#include "tandem/search/collapse_guard.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/base/rng.h"
#include "tandem/comm/world.h"
#include "tandem/search/architect.h"
#include "tests/search/smooth_network.h"

namespace tandem::search {
namespace {

Tensor random(const std::vector<int64_t>& sizes, uint64_t stream) {
  auto values = at::empty(sizes);
  fill_normal_(values, 1, 3, stream);
  return values.to(at::kDouble);
}

TEST(LargestEigenvalue, EqualsThatOfTheWholeSpectrum) {
  for (const int64_t size : {1, 2, 6, 40, 224}) {
    const auto root = random({size, size}, size);
    for (const auto& matrix : {root + root.t(), root.mm(root.t()), -root.mm(root.t())}) {
      const double exact = at::linalg_eigvalsh(matrix)[-1].item<double>();
      const double scale = at::linalg_eigvalsh(matrix).abs().max().item<double>();
      int64_t products = 0;
      const auto product = [&](const Tensor& vector) {
        ++products;
        return matrix.mv(vector);
      };
      EXPECT_NEAR(largest_eigenvalue(product, size), exact, 1e-6 * scale) << size;
      EXPECT_LE(products, size);
    }
  }
  EXPECT_EQ(largest_eigenvalue([](const Tensor& vector) { return vector * 0; }, 5), 0);
}

TEST(LargestEigenvalue, OfAValidationLossOnRanks) {
  std::vector<double> found;
  for (const int ranks : {1, 3}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      const auto net = std::make_shared<test_search::SmoothModule>();
      const auto task = test_search::task_of(net);
      Architect architect(*task, {}, group);
      const auto batch = test_search::batch_of(11, 2, group.rank(), ranks);
      const auto product = [&](const Tensor& vector) {
        return architect.hessian_product(batch, {vector.view_as(net->alphas())})[0].reshape({-1});
      };
      std::vector<Tensor> columns;
      for (int64_t i = 0; i < 6; ++i) columns.push_back(product(at::eye(6, at::kDouble)[i]));
      const double exact = at::linalg_eigvalsh(at::stack(columns))[-1].item<double>();
      EXPECT_NEAR(largest_eigenvalue(product, 6), exact, 1e-6 * std::abs(exact));
      if (group.rank() == 0) found.push_back(exact);
    });
  }
  EXPECT_NEAR(found[0], found[1], 1e-12 * std::abs(found[0]));
}

/// Alphas that count the tests.
struct Counted {
  Tensor alphas = at::zeros({2, 3});
  CollapseGuard guard{{train::Parameter::replicated("alphas.normal", alphas)}, {}};

  bool test(double eigenvalue) {
    alphas.add_(1);
    return guard.add(eigenvalue, static_cast<int64_t>(alphas[0][0].item<float>()) * 100);
  }
};

TEST(CollapseGuard, SetsTheAlphasBackWhenTheEigenvalueRises) {
  Counted counted;
  for (int i = 0; i < 12; ++i) EXPECT_FALSE(counted.test(0.2));
  EXPECT_FALSE(counted.test(0.4));  // the mean rises to 0.24
  EXPECT_TRUE(counted.test(0.4));   // 0.28 is more than 1.3 * 0.2
  EXPECT_EQ(counted.alphas[1][2].item<float>(), 10);
  EXPECT_EQ(counted.guard.acted_at(), 1400);
  EXPECT_FALSE(counted.test(9));
}

TEST(CollapseGuard, ActsNotBeforeTheTenthTest) {
  Counted counted;
  for (const double value : {0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6}) EXPECT_FALSE(counted.test(value));
  EXPECT_TRUE(counted.test(51.2));
}

TEST(CollapseGuard, ASteadyEigenvalueIsNoSign) {
  Counted counted;
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(counted.test(0.2 + 0.002 * i));
}

TEST(CollapseGuard, GoesOnFromACheckpoint) {
  Counted whole, first, rest;
  for (int i = 0; i < 12; ++i) whole.test(0.2), first.test(0.2);
  for (size_t i = 0; i < first.guard.state().size(); ++i) {
    rest.guard.state()[i].tensor.copy_(first.guard.state()[i].tensor);
  }
  rest.guard.set_numbers(first.guard.numbers());
  rest.alphas.copy_(first.alphas);
  for (const double value : {0.4, 0.4}) EXPECT_EQ(whole.test(value), rest.test(value));
  EXPECT_TRUE(rest.guard.has_acted());
  EXPECT_TRUE(rest.alphas.equal(whole.alphas));
}

}  // namespace
}  // namespace tandem::search
