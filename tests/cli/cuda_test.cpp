#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run_command.h"
#include "tests/support/files.h"

// Whole jobs on a GPU, on noise (a machine for GPUs may have no fonts): their losses are those of the CPU.
namespace tandem::cli {
namespace {

using Words = std::vector<std::string>;

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "no GPU here";
  }

  nlohmann::json train(const std::string& device, const Words& more, int ranks = 1) const {
    const auto out = (folder_ / std::to_string(num_runs_++)).string();
    Words words = {"train",     "data=synthetic", "head.classes=20",      "train.batch=16",   "train.steps=12",
                   "threads=1", "train.lr=0.02",  "report.compare=false", "device=" + device, "out=" + out};
    if (ranks > 1) words.insert(words.begin(), {"launch", "-n", std::to_string(ranks), "--"});
    words.insert(words.end(), more.begin(), more.end());  // the last of a name holds
    const auto ended = test::run_tandem(words);
    EXPECT_EQ(ended.status, 0) << ended.err;
    return nlohmann::json::parse(test::slurp(out + "/result.json"));
  }

  void expect_close(const Words& words, double tolerance, int ranks = 1) const {
    SCOPED_TRACE(testing::PrintToString(words));
    const auto gpu = train("cuda", words, ranks), cpu = train("cpu", words, ranks);
    ASSERT_EQ(gpu["losses"].size(), 12U);
    for (size_t i = 0; i < 12; ++i) {
      const double wanted = cpu["losses"][i];
      EXPECT_NEAR(gpu["losses"][i].get<double>(), wanted, tolerance * wanted) << "step " << i;
    }
    for (const auto& rank : gpu["memory"]["ranks"]) {
      EXPECT_GT(rank["device"]["peak_bytes"].get<int64_t>(), 0);
      EXPECT_GE(rank["device"]["peak_bytes"], rank["device"]["live_bytes"]);
    }
    EXPECT_FALSE(cpu["memory"]["ranks"][0].contains("device"));
  }

  test::TemporaryFolder folder_;
  mutable int num_runs_ = 0;
};

const std::vector<Words> kHeads = {{},
                                   {"head.parallel=naive"},
                                   {"head.fused_update=true"},
                                   {"head.sample=0.5", "head.lazy=exact"},
                                   {"train.optimizer=adamw", "train.clip=1"}};

TEST_F(Cuda, AJobInFloat64) {
  for (const std::string model : {"mlp", "resnet_glyph"}) {
    for (auto words : kHeads) {
      words.insert(words.end(), {"model=" + model, "train.precision=float64"});
      expect_close(words, 1e-8);
    }
  }
}

TEST_F(Cuda, AJobInFloat32) {
  for (const std::string model : {"mlp", "resnet_glyph"}) {
    for (auto words : kHeads) {
      // Steps so small that what a GPU rounds in another way (convolutions' inputs to 10 bits) does not grow.
      words.insert(words.end(), {"model=" + model, "train.lr=1e-4"});
      expect_close(words, 1e-2);
    }
  }
}

/// More than a block of classes on either.
TEST_F(Cuda, AJobOfManyClasses) {
  for (Words words : {Words{}, Words{"head.fused_update=true"}, Words{"head.keep_bytes=0"}, Words{"head.sample=0.5"}}) {
    words.insert(words.end(), {"model=mlp", "train.precision=float64", "head.classes=150000", "train.batch=20"});
    expect_close(words, 1e-8);
  }
}

/// On one GPU the ranks share it and exchange through the host; with two, by NCCL.
TEST_F(Cuda, TwoProcesses) {
  for (auto words : kHeads) {
    words.insert(words.end(), {"model=resnet_glyph", "train.precision=float64"});
    expect_close(words, 1e-8, 2);
  }
}

TEST_F(Cuda, ASnapshotOfAStepIsWritten) {
  const test::TemporaryFolder folder;
  const auto path = (folder / "step.pickle").string();
  const auto ended = test::run_tandem({"memory", "data=synthetic", "head.classes=20", "model=resnet_glyph",
                                       "train.batch=4", "device=cuda", "--snapshot", path});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_NE(test::slurp(path).find("device_traces"), std::string::npos);
}

TEST_F(Cuda, ACheckpointGoesFromOneToTheOther) {
  const Words words = {"model=mlp", "train.precision=float64"};
  const auto gpu = train("cuda", words);
  const auto resumed = train(
      "cpu", {"model=mlp", "train.precision=float64", "train.steps=14", "resume=" + gpu["run"].get<std::string>()});
  EXPECT_EQ(resumed["losses"].size(), 2U);  // the steps after the GPU's
}

}  // namespace
}  // namespace tandem::cli
