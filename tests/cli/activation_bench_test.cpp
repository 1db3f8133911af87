#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/run_command.h"
#include "tests/support/files.h"

namespace tandem::cli {
namespace {

TEST(ActivationBench, WritesItsBytesAndErrors) {
  const test::TemporaryFolder folder;
  const auto path = (folder / "activation.json").string();
  const auto ended = test::run_here({"bench", "activation", "quick=true", "rounds=1", "--json", path});
  ASSERT_EQ(ended.status, 0) << ended.err;
  std::ifstream file(path);
  const auto result = nlohmann::json::parse(file);
  std::set<std::string> names;
  for (const auto& one : result["cases"]) {
    const std::string name = one["name"], peer = one["peer"];
    const double ratio = one["bytes_ratio"];
    names.insert(name + " " + peer);
    EXPECT_GT(one["speedup"], 0) << name;
    EXPECT_EQ(one["shape"].size(), 4u);
    EXPECT_LE(one["peak_bytes"],
              name == "swish-merged" ? 2 * one["peer_peak_bytes"].get<double>() : one["peer_peak_bytes"].get<double>())
        << name;
    if (peer == "silu") {
      EXPECT_EQ(ratio, 1);
    }
    if (peer == "batch_norm + relu") {
      EXPECT_LE(ratio, 0.55);
    }
    if (peer == "batch_norm + silu") {
      EXPECT_LE(ratio, 0.6);
    }
  }
  for (const auto* name : {"swish-fused silu", "swish-fused swish-naive", "mish-fused mish", "gelu-fused gelu",
                           "abn-leaky batch_norm + relu", "abn-swish batch_norm + silu"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_EQ(result["errors"].size(), 3u * 6u);  // leaky ReLU, ELU, swish, each for weights of 1 to 1e-5
  for (const auto& one : result["errors"]) {
    const double weight = one["weight"];
    EXPECT_LT(one["form_one"], 1e-7 / weight + 1e-5) << one;
    EXPECT_LT(one["form_two"], 1e-7 / weight + 1e-5) << one;
  }
}

}  // namespace
}  // namespace tandem::cli
