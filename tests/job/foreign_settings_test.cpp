#include <gtest/gtest.h>

#include "tests/job/whole_run.h"

namespace tandem::job {
namespace {

/// What a setting would break if another strategy heeded it.
const std::vector<Words> kForeign = {
    {"ddp", "ddp.hook=powersgd", "ddp.unused=static"},   {"fsdp", "fsdp.reshard=5", "fsdp.prefetch=false"},
    {"ps", "ps.servers=2", "ps.aggregate=trimmed-mean"}, {"local-sgd", "local_sgd.every=2"},
    {"diloco", "diloco.every=2", "diloco.lr=0.1"},
};

TEST(Strategies, SettingsOfOthersChangeNothing) {
  for (const auto& strategy : parallel::strategies()) {
    const Words words = {"parallel=" + std::string(strategy.name), "model=mlp", "train.batch=21", "ranks=3"};
    auto all = words;
    for (const auto& foreign : kForeign) {
      if (foreign[0] != strategy.name) all.insert(all.end(), foreign.begin() + 1, foreign.end());
    }
    const auto plain = whole_run(words, 3), other = whole_run(all, 3);
    EXPECT_EQ(plain.losses, other.losses) << strategy.name;
    EXPECT_EQ(plain.hash, other.hash) << strategy.name;
  }
}

}  // namespace
}  // namespace tandem::job
