#include "tandem/layers/embedding.h"

#include "tests/layers/layer_cases.h"

namespace tandem::layers {
namespace {

using namespace test_layers;

constexpr int64_t kRows = 4, kWidth = 7;

const Tensor& indices() {
  static const auto all = at::tensor({0, 3, 3, 1, 0, 2}, at::kLong).view({2, 3});
  return all;
}

/// A layer with an index for an input: train() moves the input through, which no gradient reaches.
void expect_one_device(const std::function<std::shared_ptr<Layer>(comm::ProcessGroup&)>& make,
                       const std::function<Tensor(Layer&, const Tensor&)>& forward) {
  const auto train_on = [&](Layer& layer, const std::function<Tensor()>& look_up) {
    const auto plain = [&](const Tensor& x) { return look_up() * x; };
    return train(plain, layer, at::ones({1}, at::kDouble),
                 [](const Tensor& y) { return (y * numbers(y.sizes(), 1)).sum() + y.pow(2).mean(); });
  };
  const auto single = comm::make_single_group();
  const auto alone = ready(make(*single));
  const auto weight = alone->parameters()[0];
  const auto expected = train_on(*alone, [&] { return at::embedding(weight, indices()); });
  on_ranks([&](comm::ProcessGroup& group) {
    const auto layer = ready(make(group));
    const auto own = train_on(*layer, [&] { return forward(*layer, indices()); });
    for (size_t i = 0; i < own.outputs.size(); ++i) EXPECT_TRUE(are_equal(own.outputs[i], expected.outputs[i])) << i;
    expect_parts(*layer, own.weights, expected.weights);
  });
}

/// On 5 ranks one has no row.
TEST(RowEmbedding, IsThatOfOneDevice) {
  expect_one_device(
      [](comm::ProcessGroup& group) { return std::make_shared<RowEmbedding>(Division(group, kRows), kWidth); },
      [](Layer& layer, const Tensor& x) { return dynamic_cast<RowEmbedding&>(layer).forward(x); });
}

TEST(ColumnEmbedding, IsThatOfOneDevice) {
  expect_one_device(
      [](comm::ProcessGroup& group) { return std::make_shared<ColumnEmbedding>(kRows, Division(group, kWidth)); },
      [](Layer& layer, const Tensor& x) { return dynamic_cast<ColumnEmbedding&>(layer).forward(x); });
}

TEST(RowEmbedding, IndicesThatAreNoRowsAreRefused) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    const auto layer = ready(std::make_shared<RowEmbedding>(Division(group, kRows), kWidth));
    EXPECT_THROW(layer->forward(at::tensor({0, 4}, at::kLong)), c10::IndexError);
    EXPECT_THROW(layer->forward(at::tensor({-1}, at::kLong)), c10::IndexError);
    EXPECT_THROW(layer->forward(at::ones({2})), c10::ValueError);
    EXPECT_EQ(layer->forward(at::empty({0, 3}, at::kLong)).sizes(), at::IntArrayRef({0, 3, kWidth}));
  });
}

}  // namespace
}  // namespace tandem::layers
