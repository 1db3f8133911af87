#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run_command.h"

// tandem bench plans.
namespace tandem::cli {
namespace {

nlohmann::json cases_of(const std::string& mode, const std::string& ranks) {
  const auto ended = test::run_command(test::tandem_command(
      {"bench", "plans", "models=resnet_glyph", "mode=" + mode, "ranks=" + ranks, "limits=1,0", "plans=2", "batch=16",
       "size=16", "classes=11", "rounds=1", "steps=1", "slower=1", "--json", "-"}));
  EXPECT_EQ(ended.status, 0) << ended.err;
  return nlohmann::json::parse(ended.out)["cases"];
}

TEST(PlansBench, TellsHowNearThePlanThatIsChosenIsToTheBest) {
  for (const auto& [mode, ranks] : {std::pair{"steps", "2"}, std::pair{"delays", "4"}}) {
    const auto cases = cases_of(mode, ranks);
    ASSERT_EQ(cases.size(), 2U);
    EXPECT_LE(cases[1]["limit"], cases[0]["limit"]);
    for (const auto& one : cases) {
      EXPECT_GE(one["of_best"], 1);
      EXPECT_GE(one["gap"], 0);
      ASSERT_GE(one["plans"].size(), 1U);
      const auto& chosen = one["plans"][0];
      EXPECT_LE(chosen["peak_bytes"], chosen["predicted_peak_bytes"]) << one;
      for (const auto& plan : one["plans"]) {
        EXPECT_GT(plan["seconds"], 0);
        EXPECT_GE(plan["predicted_seconds"], chosen["predicted_seconds"]);
        EXPECT_LE(plan["predicted_peak_bytes"], one["limit"]);
      }
    }
  }
}

TEST(PlansBench, FaultsAreNamed) {
  const auto ended = test::run_here({"bench", "plans", "models=resnet19"});
  EXPECT_EQ(ended.status, 78);
  EXPECT_NE(ended.err.find("error: model is 'resnet19'"), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace tandem::cli
