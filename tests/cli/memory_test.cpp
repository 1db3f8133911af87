#include <gtest/gtest.h>

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tandem/base/context.h"
#include "tests/cli/run_command.h"
#include "tests/support/files.h"

// What tandem memory measures, draws and compares.
namespace tandem::cli {
namespace {

using test::run_here;
using test::run_tandem;
using Words = std::vector<std::string>;

nlohmann::json measured(const Words& words) {
  Words all = {"memory", "--json", "-", "threads=1", "embedding=32", "train.batch=13"};
  all.insert(all.end(), words.begin(), words.end());
  const auto ended = run_tandem(all);
  EXPECT_EQ(ended.status, 0) << ended.err;
  return nlohmann::json::parse(ended.out);
}

TEST(MemoryCommand, MeasuresWhatIsPredicted) {
  const auto one = measured({"model=resnet_glyph"});
  EXPECT_EQ(one["peak_bytes"], one["predicted_peak_bytes"]);
  EXPECT_EQ(one["activations_peak_bytes"], one["predicted_activations_peak_bytes"]);
  EXPECT_EQ(one["name"], "resnet_glyph, 13 images of 3 x 32 x 32, 1,000 classes");
  const auto three = measured({"model=mlp", "ranks=3", "head.classes=50", "data=glyphs", "data.size=16"});
  ASSERT_EQ(three["ranks"].size(), 3u);
  int64_t largest = 0;
  for (const auto& rank : three["ranks"]) {
    const auto peak = rank["peak_bytes"].get<int64_t>(), predicted = rank["predicted_peak_bytes"].get<int64_t>();
    EXPECT_GE(predicted, peak);
    EXPECT_LE(predicted, peak + 1024);
    largest = std::max(largest, peak);
  }
  EXPECT_EQ(three["peak_bytes"], largest);
  EXPECT_EQ(three["name"], "mlp, 13 images of 1 x 16 x 16, 50 classes");
}

TEST(MemoryCommand, TheBooksClose) {
  const auto result = measured({"model=resnet_glyph"});
  int64_t categories = 0, blocks = 0, saved = 0, highest = 0;
  for (const auto& [name, bytes] : result["categories"].items()) categories += bytes.get<int64_t>();
  for (const auto& block : result["blocks"]) {
    blocks += block["peak_bytes"].get<int64_t>();
    saved += block["saved_bytes"].get<int64_t>();
  }
  const auto& timeline = result["timeline"];
  for (size_t i = 0; i < timeline["seconds"].size(); ++i) {
    int64_t live = 0;
    for (const auto& [name, series] : timeline["categories"].items()) live += series[i].get<int64_t>();
    highest = std::max(highest, live);
  }
  EXPECT_EQ(categories, result["peak_bytes"]);
  EXPECT_EQ(blocks, result["peak_bytes"]);
  EXPECT_EQ(saved, result["saved_bytes"]);
  EXPECT_EQ(highest, result["peak_bytes"]) << "thinning keeps the peak";
  EXPECT_LE(saved, result["activations_peak_bytes"]);
  std::set<std::string> phases;
  for (const auto& band : timeline["phases"]) phases.insert(band["name"]);
  EXPECT_EQ(phases, std::set<std::string>(kPhaseNames.begin(), kPhaseNames.end()));
  EXPECT_EQ(timeline["phases"].back()["name"], "optimizer");
  EXPECT_EQ(timeline["blocks"].back()["name"], "optimizer");
}

TEST(MemoryCommand, TellsWhereThePeakIsAndWhatIsGatheredThen) {
  const Words job = {"model=mlp", "ranks=2", "head.classes=50", "train.batch=8", "embedding=32", "threads=1"};
  const auto of = [&](const std::string& command, const std::string& strategy) {
    const test::TemporaryFolder folder;
    Words words = {command, "data=synthetic", "parallel=" + strategy, "--json", (folder.path() / "x.json").string()};
    words.insert(words.end(), job.begin(), job.end());
    const auto ended = run_tandem(words);
    EXPECT_EQ(ended.status, 0) << ended.err;
    return std::pair{ended.out, nlohmann::json::parse(test::slurp(folder.path() / "x.json"))["ranks"][0]};
  };
  const auto [text, sharded] = of("memory", "fsdp");
  EXPECT_GT(sharded["gathered_bytes"].get<int64_t>(), 0);
  EXPECT_LT(sharded["gathered_bytes"].get<int64_t>(), sharded["categories"]["parameters"].get<int64_t>());
  EXPECT_EQ(sharded["peak_phase"], "backward");
  const auto place = "block '" + sharded["peak_block"].get<std::string>() + "' · ";
  EXPECT_NE(text.find("\npeak in backward of " + place), text.npos) << text;
  EXPECT_NE(text.find(" of the parameters are gathered then\n"), text.npos) << text;
  const auto [plan_text, planned] = of("plan", "fsdp");
  EXPECT_EQ(planned["gathered_bytes"], sharded["gathered_bytes"]);
  EXPECT_EQ(planned["peak_block"], sharded["peak_block"]);
  EXPECT_NE(plan_text.find("\npeak of rank 0 in " + place), plan_text.npos) << plan_text;
  EXPECT_EQ(of("memory", "ddp").second["gathered_bytes"], 0);
}

TEST(MemoryCommand, APlanThatRecomputesNothingIsNotTold) {
  const test::TemporaryFolder folder;
  const auto path = (folder.path() / "x.json").string();
  const auto ended = run_tandem({"memory", "model=mlp", "embedding=16", "train.batch=8", "recompute=optimal",
                                 "memory.budget=1G", "--json", path});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.out.find("recompute"), ended.out.npos) << ended.out;
  EXPECT_EQ(nlohmann::json::parse(test::slurp(path))["recompute"]["plan"], "");
}

TEST(MemoryCommand, ABudgetHolds) {
  const auto all = measured({"model=resnet_glyph"});
  EXPECT_EQ(all["recompute"]["plan"], "");
  EXPECT_EQ(all["recompute"]["predicted_slowdown"], 1.0);
  const auto budget = all["activations_peak_bytes"].get<int64_t>() * 2 / 3;
  for (const char* ranks : {"ranks=1", "ranks=2"}) {
    const auto some =
        measured({"model=resnet_glyph", "recompute=optimal", "memory.budget=" + std::to_string(budget), ranks});
    EXPECT_LE(some["activations_peak_bytes"].get<int64_t>(), budget) << ranks;
    EXPECT_GE(some["predicted_peak_bytes"], some["peak_bytes"]);
    EXPECT_LE(some["predicted_peak_bytes"].get<int64_t>(), some["peak_bytes"].get<int64_t>() + 1024);
  }
  const auto little = run_here({"plan", "--json", "-", "model=resnet_glyph", "data=synthetic", "head.classes=50",
                                "train.batch=13", "recompute=log"});
  EXPECT_EQ(little.status, 0) << little.err;
  const auto planned = nlohmann::json::parse(little.out)["recompute"];
  EXPECT_NE(planned["plan"].get<std::string>().find('('), std::string::npos);
  EXPECT_GT(planned["predicted_slowdown"].get<double>(), 1);
  const auto refused = run_tandem({"memory", "model=resnet_glyph", "recompute=optimal", "memory.budget=1K"});
  EXPECT_EQ(refused.status, 78);
  EXPECT_NE(refused.err.find("error: memory.budget is 1,024 bytes, wanted at least "), std::string::npos)
      << refused.err;
}

/// A training of five steps with batch statistics and dropout.
Words small_job(const Words& more) {
  Words words = {"train",         "data=synthetic",  "model=resnet_glyph",  "model.dropout=0.3",
                 "threads=1",     "head.classes=50", "data.size=32",        "embedding=32",
                 "train.steps=5", "train.batch=13",  "report.compare=false"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// The bits of all weights after it.
std::string weights_after(const Words& more) {
  const test::TemporaryFolder folder;
  auto words = small_job(more);
  words.insert(words.end(), {"--json", "-", "out=" + (folder.path() / "run").string()});
  const auto ended = run_tandem(words);
  EXPECT_EQ(ended.status, 0) << ended.err;
  return nlohmann::json::parse(ended.out)["weights_hash"];
}

/// The least budget that its refusal names. It depends on the CPU, whose convolutions need memory for themselves.
int64_t least_budget(const Words& more) {
  auto words = small_job(more);
  words.insert(words.end(), {"recompute=optimal", "memory.budget=1K"});
  const auto refused = run_tandem(words);
  EXPECT_EQ(refused.status, 78);
  const std::string before = "wanted at least ";
  auto number = refused.err.substr(refused.err.find(before) + before.size());
  number.resize(number.find_first_not_of("0123456789,"));
  std::erase(number, ',');
  return std::stoll(number);
}

/// At the least budget and above it: what is recomputed then differs, and the first recomputes most.
TEST(MemoryCommand, TrainingHasTheSameBitsWhateverIsRecomputed) {
  for (const Words& words : {Words{"ranks=1"}, Words{"ranks=3"}, Words{"ranks=1", "model=resnet18"}}) {
    SCOPED_TRACE(words.back());
    const auto with = [&, own = words](Words more) {
      more.insert(more.begin(), own.begin(), own.end());
      return weights_after(more);
    };
    const auto plain = with({});
    EXPECT_EQ(with({"recompute=sqrt"}), plain);
    EXPECT_EQ(with({"recompute=log"}), plain);
    const int64_t least = least_budget(words);
    for (const int64_t budget : {least, least + least / 8}) {
      EXPECT_EQ(with({"recompute=optimal", "memory.budget=" + std::to_string(budget)}), plain) << budget;
    }
    EXPECT_NE(with({"model.dropout=0"}), plain);
  }
}

TEST(MemoryCommand, OnlyLossyPlansChangeTheBits) {
  const auto plain = weights_after({"ranks=1"}), lossy = weights_after({"recompute=lossy", "memory.budget=3400K"});
  EXPECT_NE(lossy, plain);
  EXPECT_EQ(weights_after({"recompute=lossy", "memory.budget=3400K"}), lossy) << "nothing is drawn";
  EXPECT_EQ(weights_after({"recompute=lossy", "memory.budget=1G"}), plain) << "all is kept plainly";
}

TEST(MemoryCommand, ALossyPlanNamesItsBlocksAndKeepsABudgetBelowTheLeastOfOthers) {
  const Words words = {"model=resnet_glyph", "head.classes=50", "embedding=32"};
  const auto with = [&](const std::string& method) {
    auto all = words;
    all.insert(all.end(), {"recompute=" + method, "memory.budget=3300K"});
    return all;
  };
  const auto lossy = measured(with("lossy"));
  EXPECT_LE(lossy["activations_peak_bytes"].get<int64_t>(), 3300 * 1024);
  EXPECT_EQ(lossy["activations_peak_bytes"], lossy["predicted_activations_peak_bytes"]);
  EXPECT_NE(lossy["recompute"]["plan"].get<std::string>().find(":int8"), std::string::npos) << lossy["recompute"];
}

TEST(MemoryCommand, TheBenchTellsEachWayToSaveActivations) {
  const auto ended =
      run_tandem({"bench", "memory", "model=resnet_glyph", "size=16", "batch=8", "classes=20", "--json", "-"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  std::map<std::string, nlohmann::json> cases;
  const auto result = nlohmann::json::parse(ended.out);
  ASSERT_EQ(result["cases"].size(), 9u);
  for (const auto& one : result["cases"]) {
    EXPECT_EQ(one["peak_bytes"], one["predicted_peak_bytes"]) << one["name"];
    cases[one["name"]] = one;
  }
  const auto saved = [&](const char* name) { return cases.at(name)["saved_bytes"].get<int64_t>(); };
  EXPECT_LT(saved("swish, fused"), saved("swish, naive"));
  EXPECT_EQ(saved("swish, fused"), saved("swish, ATen's silu"));
  EXPECT_LT(saved("in-place norm and swish"), saved("swish, fused"));
  EXPECT_LT(saved("fused, recompute sqrt"), saved("swish, fused"));
}

TEST(MemoryCommand, DrawsAStepAndTwo) {
  const test::TemporaryFolder folder;
  const auto path = [&](const char* name) { return (folder.path() / name).string(); };
  for (const auto& [name, batch] : {std::pair{"a.json", "8"}, std::pair{"b.json", "16"}}) {
    const auto ended = run_tandem({"memory", "model=mlp", "embedding=16", "train.batch=" + std::string(batch), "--json",
                                   path(name), "--page", path("one.html")});
    ASSERT_EQ(ended.status, 0) << ended.err;
    EXPECT_NE(ended.out.find("saved by forward"), std::string::npos) << ended.out;
  }
  const auto one = test::slurp(path("one.html"));
  EXPECT_NE(one.find("Memory over one training step"), std::string::npos);
  EXPECT_NE(one.find("backward"), std::string::npos);
  const auto compared = run_here({"memory", "--compare", path("a.json"), path("b.json"), "--page", path("two.html")});
  ASSERT_EQ(compared.status, 0) << compared.err;
  EXPECT_NE(compared.out.find("b.json"), std::string::npos);
  const auto two = test::slurp(path("two.html"));
  EXPECT_NE(two.find("16 images"), std::string::npos);
  EXPECT_NE(two.find("8 images"), std::string::npos);
}

TEST(MemoryCommand, FaultsAreNamed) {
  const test::TemporaryFolder folder;
  const auto text = (folder.path() / "x.json").string();
  test::spill(text, "{\"peak_bytes\": 1}");
  EXPECT_EQ(run_here({"memory", "--compare", text, text}).err,
            "error: '" + text + "' is no result of tandem memory: write one with tandem memory --json FILE\n");
  test::spill(text, "no JSON");
  EXPECT_EQ(run_here({"memory", "--compare", text, text}).status, 65);
  EXPECT_EQ(run_here({"memory", "--compare", text}).err,
            "error: --compare wants two files: tandem memory --compare A.json B.json\n");
  EXPECT_EQ(run_here({"memory", "--compare", "/nowhere/a.json", text}).status, 74);
  EXPECT_EQ(run_here({"memory", "--compare", text, text, "--snapshot", "x"}).err,
            "error: --compare measures nothing, so that --snapshot has no step to show\n");
  const auto snapshot = run_here({"memory", "model=mlp", "--snapshot", text});
  EXPECT_EQ(snapshot.status, 78);
  EXPECT_EQ(snapshot.err,
            "error: device is cpu, wanted cuda for a snapshot, which is one of CUDA's allocator: pass device=cuda, or "
            "--page for a picture of any device\n");
}

}  // namespace
}  // namespace tandem::cli
