#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>

#include "tandem/memory/meter.h"
#include "tandem/memory/recompute_plan.h"
#include "tandem/memory/rehearsal.h"
#include "tests/support/text_of.h"

namespace tandem::memory {
namespace {

class RecomputeStages : public testing::Test {
 protected:
  static void SetUpTestSuite() { install_meter(); }
};

/// A residual block cut into four.
Chain residual(int64_t channels) {
  torch::nn::Conv2d first(torch::nn::Conv2dOptions(channels, channels, 3).padding(1)),
      second(torch::nn::Conv2dOptions(channels, channels, 3).padding(1));
  return {{{"stem", {first.ptr()}, [first](const Flow& x) mutable { return Flow{first(x[0])}; }},
           {"relu",
            {},
            [](const Flow& x) {
              return Flow{at::relu(x[0]), x[0]};
            }},
           {"conv",
            {second.ptr()},
            [second](const Flow& x) mutable {
              return Flow{second(x[0]), x[1]};
            }},
           {"add", {}, [](const Flow& x) { return Flow{x[0] + x[1]}; }},
           {"loss", {}, [](const Flow& x) { return Flow{(x[0] * x[0]).sum()}; }}}};
}

Chain plain(int64_t channels) {
  auto chain = residual(channels);
  chain.blocks[1].forward = [](const Flow& x) { return Flow{at::relu(x[0])}; };
  chain.blocks[2].forward = [conv = torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, channels, 1))](
                                const Flow& x) mutable { return Flow{conv(x[0])}; };
  chain.blocks[3].forward = [](const Flow& x) { return Flow{at::silu(x[0])}; };
  return chain;
}

TEST_F(RecomputeStages, ComeFromARehearsal) {
  const auto chain = residual(4);
  const auto stages = stages_of(chain, rehearse(chain, {at::ones({2, 4, 8, 8})}));
  const int64_t bytes = 2 * 4 * 8 * 8 * 4, parameters = (4 * 4 * 3 * 3 + 4) * 4;
  ASSERT_EQ(stages.size(), 5u);
  const auto keeps = [&](int i) { return std::pair{stages[i].keeps.at(0).input, stages[i].keeps[0].output}; };
  EXPECT_EQ(stages[0].name, "stem");
  for (int i = 0; i < 4; ++i) EXPECT_EQ(stages[i].output, bytes) << i;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(stages[i].keeps[0].bytes, 0) << i;
  for (const int i : {1, 2}) {
    ASSERT_EQ(stages[i].shortcuts.size(), 1u);
    EXPECT_EQ(stages[i].shortcuts[0].stage, 0);
    EXPECT_EQ(stages[i].shortcuts[0].bytes, bytes);
  }
  EXPECT_TRUE(stages[3].shortcuts.empty());
  EXPECT_EQ(keeps(0), std::pair(true, false));              // a convolution keeps its input
  EXPECT_EQ(stages[2].keeps[0].spared, stages[2].forward);  // and has nothing else to do before it is done
  EXPECT_EQ(stages[1].keeps[0].spared, 0);
  EXPECT_EQ(keeps(1), std::pair(false, true));   // relu keeps its output
  EXPECT_EQ(keeps(3), std::pair(false, false));  // a sum keeps nothing
  EXPECT_EQ(stages[0].gradients, parameters);
  EXPECT_EQ(stages[2].gradients, parameters);
  EXPECT_EQ(stages[1].gradients, 0);
  EXPECT_EQ(stages[4].output, 4);
}

TEST_F(RecomputeStages, PredictThePeakOfAStepThatKeepsEverything) {
  for (const int64_t channels : {4, 16}) {
    const auto x = at::ones({2, channels, 8, 8});
    const auto peaks = [&](const Chain& chain) {
      const auto records = rehearse(chain, {x});
      const auto stages = stages_of(chain, records);
      return std::pair{cost_of(plan_none(stages), stages).peak, compose(records, {}).account.peak_bytes()};
    };
    const auto [predicted, composed] = peaks(plain(channels));
    EXPECT_EQ(predicted, composed);
    // The relu keeps its output, not the shortcut beside it; and the two inputs of the sum share one gradient.
    const auto [above, exact] = peaks(residual(channels));
    EXPECT_EQ(above, exact + 2 * x.numel() * 4);
  }
}

TEST_F(RecomputeStages, NeedARecordForEachBlock) {
  EXPECT_EQ(test::text_of<c10::ValueError>([] { stages_of(residual(4), {}); }),
            "chain: it has 5 blocks, but 0 records, wanted one for each");
}

}  // namespace
}  // namespace tandem::memory
