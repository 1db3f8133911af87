#include "tandem/comm/collectives.h"
#include "tandem/layers/convolution.h"
#include "tests/layers/layer_cases.h"

namespace tandem::layers {
namespace {

using namespace test_layers;

constexpr int64_t kGroups = 5, kSamples = 7;
constexpr std::array<int64_t, 2> kNoPadding = {0, 0};
const Conv2d::Options kHead = {.in = 10, .out = 15, .kernel = 3, .padding = 1, .groups = kGroups, .bias = true};
const Conv2d::Options kTail = {.in = 15, .out = 5, .kernel = 2, .stride = 2, .groups = kGroups};

/// The loss of some samples; over all it is that of the batch.
Tensor loss_of(const Tensor& y, int64_t first) {
  const auto all = numbers({kSamples, y.size(1), y.size(2), y.size(3)}, 1);
  return (y.pow(2) * all.narrow(0, first, y.size(0))).sum() / kSamples;
}

struct Pair : torch::nn::Module {
  explicit Pair(comm::ProcessGroup& group) {
    const Division groups(group, kGroups);
    head = register_module("head", std::make_shared<GroupConv2d>(kHead, groups, true, /*is_tail=*/false));
    tail = register_module("tail", std::make_shared<GroupConv2d>(kTail, groups, /*is_head=*/false));
    initialize(*this, 3);
    head->to(at::kDouble);
    tail->to(at::kDouble);
  }
  Tensor forward(const Tensor& x) const { return tail->forward(at::silu(head->forward(x))); }

  std::shared_ptr<GroupConv2d> head, tail;
};

TEST(GroupConv2d, AChainIsThatOfOneDeviceAndSendsAtItsEndsAlone) {
  const auto single = comm::make_single_group();
  Pair alone(*single);
  const auto x = numbers({kSamples, kHead.in, 4, 6}, 0);
  const auto plain = [&](const Tensor& in) {
    const auto& of_head = alone.head->named_parameters();
    const auto hidden = at::conv2d(in, of_head["weight"], of_head["bias"], {1, 1}, {1, 1}, {1, 1}, kGroups);
    return at::conv2d(at::silu(hidden), alone.tail->named_parameters()["weight"], Tensor(), {2, 2}, kNoPadding, {1, 1},
                      kGroups);
  };
  const auto expected = train(plain, alone, x, [](const Tensor& y) { return loss_of(y, 0); });
  on_ranks([&](comm::ProcessGroup& group) {
    const Division samples(group, kSamples);
    Pair pair(group);
    const auto own_x = x.narrow(0, samples.first(), samples.count());
    group.meter().reset();
    const auto own = train([&](const Tensor& in) { return pair.forward(in); }, pair, own_x,
                           [&](const Tensor& y) { return loss_of(y, samples.first()); });
    const auto counts = group.meter().counts();
    if (group.size() > 1) {
      EXPECT_EQ(counts.at("all_to_all").calls, 10 * 4);
    }
    for (size_t i = 0; i < own.outputs.size(); ++i) {
      EXPECT_TRUE(are_equal(own.outputs[i], expected.outputs[i].narrow(0, samples.first(), samples.count()))) << i;
    }
    EXPECT_TRUE(are_equal(own.dx, expected.dx.narrow(0, samples.first(), samples.count())));
    expect_parts_of_children(pair, own.weights, expected.weights);
  });
}

}  // namespace
}  // namespace tandem::layers
