#include "tandem/parallel/strategy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/world.h"
#include "tandem/memory/meter.h"
#include "tests/support/text_of.h"

namespace tandem::parallel {
namespace {

TEST(Strategy, NamesAreFoundAndOthersNameTheSetting) {
  for (const auto& strategy : strategies()) EXPECT_EQ(&strategy_of(strategy.name), &strategy);
  EXPECT_EQ(test::text_of<SettingsError>([] { strategy_of("magic"); }), "parallel is 'magic', wanted one of ddp");
}

/// Each strategy leaves, on every rank, the gradient of the whole batch; the split parameter is not its business.
TEST(Strategy, GradientsAreSumsOverRanksAndMicroBatches) {
  for (const auto& strategy : strategies()) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (const int64_t parts : {1, 2, 3}) {
        comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
          const auto weight = at::ones({3}, at::kDouble).requires_grad_(), own = at::ones({1, 2}).requires_grad_();
          const std::vector<Parameter> parameters = {Parameter::replicated("weight", weight),
                                                     Parameter::split("own", own, {0, group.rank(), 1, ranks})};
          const auto sync = strategy.make(parameters, {}, group, {});
          for (int step = 0; step < 3; ++step) {
            for (int64_t i = 0; i < parts; ++i) {
              const MicroBatch micro{i, parts};
              sync->before_forward(micro);
              const auto loss = (weight * static_cast<double>(group.rank() + 1) * static_cast<double>(i + 1)).sum() +
                                own.sum() * (group.rank() + 1.0);
              sync->before_backward(loss, micro);
              loss.backward();
              sync->after_backward(micro);
            }
            const double sum = 0.25 * ranks * (ranks + 1) * parts * (parts + 1);
            EXPECT_TRUE(weight.grad().equal(at::full({3}, sum, at::kDouble))) << strategy.name;
            EXPECT_TRUE(own.grad().equal(at::full({1, 2}, (group.rank() + 1.0) * parts))) << strategy.name;
            for (const auto& tensor : {weight, own}) tensor.mutable_grad().reset();
            sync->after_step();
          }
        });
      }
    }
  }
}

TEST(Strategy, HoldsTheBytesThatItSays) {
  memory::install_meter();
  for (const auto& strategy : strategies()) {
    for (const int ranks : {1, 3}) {
      comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
        const RankScope scope(group.rank());
        const auto weight = at::ones({3000}).requires_grad_();
        comm::barrier(group);
        const auto before = memory::account(group.rank()).live;
        const auto sync = strategy.make({Parameter::replicated("weight", weight)}, {}, group, {});
        auto held = memory::account(group.rank()).live;
        for (size_t i = 0; i < held.size(); ++i) held[i] -= before[i];
        EXPECT_EQ(held, strategy.bytes(12000, ranks, {})) << strategy.name << " ranks " << ranks;
        comm::barrier(group);
      });
    }
  }
}

}  // namespace
}  // namespace tandem::parallel
