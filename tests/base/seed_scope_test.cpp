#include "tandem/base/seed_scope.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace tandem {
namespace {

/// As a module with many layers draws: many small draws from the default generator.
Tensor drawn() {
  std::vector<Tensor> layers;
  for (int i = 0; i < 200; ++i) layers.push_back(at::empty({16}).uniform_());
  return at::cat(layers);
}

Tensor drawn_with(uint64_t seed) {
  const SeedScope scope(seed);
  return drawn();
}

TEST(SeedScope, ThreadsThatDrawAtOnceGetWhatOneGetsAlone) {
  at::manual_seed(7);
  const auto alone = drawn();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 20; ++j) EXPECT_TRUE(drawn_with(7).equal(alone));
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(SeedScope, LeavesTheGeneratorWhereItWas) {
  at::manual_seed(3);
  const auto first = at::rand({4}), second = at::rand({4});
  at::manual_seed(3);
  EXPECT_TRUE(at::rand({4}).equal(first));
  EXPECT_FALSE(drawn_with(1).equal(drawn_with(2)));
  EXPECT_TRUE(at::rand({4}).equal(second));
}

}  // namespace
}  // namespace tandem
