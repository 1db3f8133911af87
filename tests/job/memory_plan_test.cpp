#include "tandem/job/memory_plan.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "tandem/base/error.h"
#include "tandem/memory/meter.h"

namespace tandem::job {
namespace {

Job job_with_a_backbone() {
  settings::Settings settings(schema());
  settings.apply(std::vector<std::string>{"model=mlp", "embedding=16", "train.batch=16", "ranks=2"});
  return read_job(settings);
}

CategoryBytes planned(const Job& job) { return MemoryPlan(job, {50, {1, 16, 16}}).rank(0, 25); }

TEST(MemoryPlan, LeavesTheBooksOfEveryRankAlone) {
  memory::install_meter();
  const RankScope rank(1023);  // the last there is
  auto large = at::empty({1 << 20}, at::kFloat);
  large.reset();
  const auto before = memory::account(1023);
  planned(job_with_a_backbone());
  EXPECT_EQ(memory::account(1023).live, before.live);
  EXPECT_EQ(memory::account(1023).at_peak, before.at_peak);
}

TEST(MemoryPlan, RanksThatShareStatisticsMayHaveOneImageEach) {
  memory::install_meter();
  const auto plan = [](const std::string& norm) {
    settings::Settings settings(schema());
    settings.apply(std::vector<std::string>{"model=resnet_glyph", "embedding=16", "train.batch=2", "ranks=2",
                                            "model.norm=" + norm});
    return planned(read_job(settings));
  };
  EXPECT_GT(plan("sync")[static_cast<size_t>(Category::activations)], 0);
  EXPECT_THROW(plan("batch"), SettingsError);
}

TEST(MemoryPlan, IsTheSameBesideAnother) {
  memory::install_meter();
  const auto job = job_with_a_backbone();
  const auto alone = planned(job);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 10; ++j) EXPECT_EQ(planned(job), alone);
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace tandem::job
