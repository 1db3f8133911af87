#include "tandem/parallel/detail/ready_in_order.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace tandem::parallel::detail {
namespace {

/// Backward comes to the parameters from the last to the first: each is a product's factor.
Tensor product_of(const std::vector<Tensor>& parameters) {
  auto product = at::ones({});
  for (const auto& parameter : parameters) product = product * parameter;
  return product;
}

struct Followed {
  std::vector<Tensor> parameters;
  std::vector<std::string> events;
  std::unique_ptr<ReadyInOrder> order;

  using Lists = std::vector<std::vector<size_t>>;

  explicit Followed(const Lists& lists) {
    std::vector<std::vector<Tensor>> tensors(lists.size());
    for (size_t i = 0; i < 5; ++i) {
      parameters.push_back(at::full({}, 2.0).requires_grad_());
      parameters[i].register_hook([this, i](const Tensor&) { events.push_back(std::to_string(i)); });
    }
    for (size_t i = 0; i < lists.size(); ++i) {
      for (const auto place : lists[i]) tensors[i].push_back(parameters[place]);
    }
    order =
        std::make_unique<ReadyInOrder>(tensors, [this](size_t i) { events.push_back("ready " + std::to_string(i)); });
  }
};

using Events = std::vector<std::string>;

TEST(GradientWatch, IsCalledWhenAGradientIsThereUntilItEnds) {
  const auto parameter = at::full({}, 2.0).requires_grad_();
  std::vector<double> seen;
  {
    const GradientWatch watch(parameter, [&] { seen.push_back(parameter.grad().item<double>()); });
    (parameter * 3).backward();
    (parameter * parameter).backward();
  }
  (parameter * 5).backward();
  EXPECT_EQ(seen, (std::vector<double>{3, 7}));
  EXPECT_EQ(parameter.grad().item<double>(), 12);
}

TEST(ReadyInOrder, TellsOfListsInTheirOrder) {
  Followed followed({{3, 1}, {2}, {0}});
  followed.order->begin();
  product_of(followed.parameters).backward();
  followed.order->end();
  EXPECT_EQ(followed.events, (Events{"4", "3", "2", "1", "ready 0", "ready 1", "0", "ready 2"}));
}

TEST(ReadyInOrder, TellsOfGradientsThatDoNotComeInTheEnd) {
  Followed followed({{4}, {3, 2}, {1}, {}});
  followed.order->begin();
  product_of({followed.parameters[1], followed.parameters[3], followed.parameters[4]}).backward();
  EXPECT_EQ(followed.events, (Events{"4", "ready 0", "3", "1"}));
  followed.order->end();
  EXPECT_EQ(followed.events, (Events{"4", "ready 0", "3", "1", "ready 1", "ready 2", "ready 3"}));
}

TEST(ReadyInOrder, FollowsOnlyWhatItIsToldTo) {
  Followed followed(Followed::Lists{{4}});
  product_of(followed.parameters).backward();
  followed.order->end();
  for (int step = 0; step < 2; ++step) {
    followed.events.clear();
    followed.order->begin();
    product_of({followed.parameters[4]}).backward();
    EXPECT_EQ(followed.events, (Events{"4", "ready 0"}));
    EXPECT_THROW(product_of({followed.parameters[4]}).backward(), c10::Error);
    followed.order->end();
  }
  followed.order.reset();
  product_of(followed.parameters).backward();
}

}  // namespace
}  // namespace tandem::parallel::detail
