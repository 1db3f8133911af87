#include "tandem/comm/region.h"

#include <ATen/ATen.h>

#include "tandem/base/error.h"
#include "tandem/comm/split.h"
#include "tests/comm/backends.h"
#include "tests/support/text_of.h"

namespace tandem::comm {
namespace {

class Regions : public test::OnBackends {};
INSTANTIATE_TEST_SUITE_P(Backends, Regions, test::kTransports, test::backend_name);

constexpr int64_t kRows = 4, kIn = 5, kHidden = 7, kOut = 3;

Tensor numbers(at::IntArrayRef shape, double phase) {
  return at::sin(at::arange(c10::multiply_integers(shape), at::kDouble) * 1.3 + phase).reshape(shape);
}

struct Oracle {
  Tensor x = numbers({kRows, kIn}, 0).requires_grad_(), up = numbers({kHidden, kIn}, 1).requires_grad_(),
         down = numbers({kOut, kHidden}, 2).requires_grad_(), y;

  Oracle() {
    y = at::matmul(at::tanh(at::matmul(x, up.t())), down.t());
    y.pow(2).sum().backward();
  }
};

void expect_close(const Tensor& got, const Tensor& wanted, const char* what) {
  EXPECT_TRUE(at::allclose(got, wanted, 1e-12, 1e-12)) << what << "\n" << got << wanted;
}

// The loss is the same on all ranks and counts once: gradients are those of one device, not n times as large.
TEST_P(Regions, ATwoLayerBlockGivesTheGradientsOfOneDevice) {
  const Oracle oracle;
  for (int n = 1; n <= 5; ++n) {
    on_ranks(n, [&](ProcessGroup& group) {
      const auto [low, high] = split_range(kHidden, n, group.rank());
      const auto x = oracle.x.detach().clone().requires_grad_();
      const auto up = oracle.up.detach().slice(0, low, high).clone().requires_grad_();
      const auto down = oracle.down.detach().slice(1, low, high).clone().requires_grad_();
      const auto hidden = at::tanh(at::matmul(copy_to_region(x, group), up.t()));
      const auto y = reduce_from_region(at::matmul(hidden, down.t()), group);
      y.pow(2).sum().backward();
      expect_close(y, oracle.y, "y");
      expect_close(x.grad(), oracle.x.grad(), "dx");
      expect_close(up.grad(), oracle.up.grad().slice(0, low, high), "d up");
      expect_close(down.grad(), oracle.down.grad().slice(1, low, high), "d down");
    });
  }
}

TEST_P(Regions, ScatterAndGatherAreEachOthersGradient) {
  for (int n = 1; n <= 5; ++n) {
    on_ranks(n, [&](ProcessGroup& group) {
      const auto x = numbers({kRows, kHidden}, 3).requires_grad_();
      const auto part = scatter_to_region(x, group);
      EXPECT_EQ(part.size(1), split_sizes(kHidden, n)[group.rank()]);
      const auto whole = gather_from_region(part, group);
      expect_close(whole, x.detach(), "there and back");
      whole.pow(3).sum().backward();
      expect_close(x.grad(), 3 * x.detach().pow(2), "its gradient");
    });
  }
}

TEST_P(Regions, APartOfAnotherSizeIsRejected) {
  if (GetParam() == Transport::sockets) return;  // the rank that is right would wait for Gloo's word
  const auto text = test::text_of([&] {
    on_ranks(2, [](ProcessGroup& group) { gather_from_region(at::ones({2, group.rank() == 0 ? 1 : 2}), group); });
  });
  EXPECT_NE(text.find("gather_from_region: size of dim 1 is "), std::string::npos) << text;
}

}  // namespace
}  // namespace tandem::comm
