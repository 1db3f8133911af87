#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/cli/run_command.h"
#include "tests/support/files.h"

// What tandem plan tells against what tandem train measures.
namespace tandem::cli {
namespace {

using test::run_here;
using test::run_tandem;
using Words = std::vector<std::string>;

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

nlohmann::json json_of(const test::Ended& ended) {
  EXPECT_EQ(ended.status, 0) << ended.err;
  return nlohmann::json::parse(ended.out);
}

nlohmann::json plan(const Words& words) { return json_of(run_here(with({"plan", "--json", "-"}, words))); }

nlohmann::json measured(const Words& words) {
  const test::TemporaryFolder folder;
  const Words run = {
      "train", "train.steps=3", "report.compare=false", "--json", "-", "out=" + (folder.path() / "run").string()};
  return json_of(run_tandem(with(run, words)))["memory"]["ranks"];
}

/// A plan tells the peak that training measures: at most a kibibyte more, for the targets of other ranks' classes.
void expect_equal(const Words& words) {
  SCOPED_TRACE(std::accumulate(words.begin(), words.end(), std::string(), [](auto a, auto b) { return a + " " + b; }));
  const auto planned = plan(words)["ranks"], found = measured(words);
  ASSERT_EQ(planned.size(), found.size());
  for (size_t rank = 0; rank < found.size(); ++rank) {
    const auto told = planned[rank]["predicted_peak_bytes"].get<int64_t>();
    const auto bytes = found[rank]["train"]["peak_bytes"].get<int64_t>();
    EXPECT_EQ(told, found[rank]["train"]["predicted_peak_bytes"]) << rank;
    EXPECT_GE(told, bytes) << rank;
    EXPECT_LE(told, bytes + 1024) << rank;
    for (const auto& [category, at_peak] : found[rank]["train"]["categories"].items()) {
      EXPECT_NEAR(planned[rank]["categories"][category].get<double>(), at_peak.get<double>(), 1024) << category;
    }
  }
}

TEST(Plan, IsWhatTrainingMeasures) {
  const Words head = {"data=synthetic", "model=none",     "head.classes=40011",
                      "embedding=96",   "train.batch=62", "threads=1"};
  expect_equal(with(head, {"ranks=1"}));
  expect_equal(with(head, {"ranks=4", "train.optimizer=adamw"}));
  expect_equal(with(head, {"ranks=3", "head.fused_update=true", "head.keep_bytes=2M"}));
  expect_equal(with(head, {"ranks=2", "train.momentum=0", "train.nesterov=false", "train.precision=float64"}));
  expect_equal(with(head, {"ranks=3", "memory.limit=20M,30M,60M"}));
  expect_equal(with(head, {"ranks=2", "train.clip=1"}));
}

TEST(Plan, IsWhatTrainingMeasuresOfBackbones) {
  const Words job = {"data=synthetic", "head.classes=2003", "train.batch=64", "threads=1", "ranks=2"};
  expect_equal(with(job, {"model=resnet_glyph"}));
  expect_equal(with(job, {"model=mlp", "train.batch=255", "train.accumulate=2"}));
}

TEST(Plan, IsWhatTrainingMeasuresOfASearch) {
  const Words job = {"data=synthetic",   "head.classes=103", "model=search:s3", "model.cells=3",
                     "model.channels=4", "train.batch=48",   "threads=1",       "data.size=8"};
  expect_equal(with(job, {"ranks=2"}));
  expect_equal(with(job, {"search.order=1", "search.method=darts-minus"}));
}

/// The weight of ten million classes: 10^7 * 512 * 4 bytes, an eighth of it on each of eight ranks.
TEST(Plan, TenMillionClasses) {
  const auto result = plan({"head.classes=10000000", "embedding=512", "train.batch=1024", "ranks=8", "model=none"});
  EXPECT_EQ(result["classes"], 10'000'000);
  EXPECT_EQ(result["weight_bytes"], 20'480'000'000);
  for (const auto& rank : result["ranks"]) {
    EXPECT_EQ(rank["classes"], 1'250'000);
    EXPECT_EQ(rank["categories"]["parameters"], 2'560'000'000);
    EXPECT_EQ(rank["categories"]["gradients"], 2'560'000'000);
    EXPECT_EQ(rank["categories"]["optimizer"], 2'560'000'000);
  }
  const auto peak = [&](const char* form) { return result["forms"][form]["ranks"][0]["peak_bytes"].get<int64_t>(); };
  EXPECT_GT(peak("naive"), peak("data_parallel"));
  EXPECT_GT(peak("data_parallel"), peak("sharded"));
  EXPECT_GT(peak("sharded"), peak("blocks"));
  EXPECT_GT(peak("blocks"), peak("fused_update"));
}

TEST(Plan, TheClassesThatFitAreThoseThatItSays) {
  const Words job = {"embedding=512", "train.batch=1024", "ranks=2", "model=none", "memory.limit=1G,3G"};
  const auto small = plan(with(job, {"head.classes=1000"}));
  const int64_t most = small["largest_classes"];
  const auto fits = plan(with(job, {"head.classes=" + std::to_string(most)}));
  EXPECT_TRUE(fits["fits"].get<bool>());
  EXPECT_LE(fits["ranks"][0]["peak_bytes"].get<int64_t>(), int64_t{1} << 30);
  EXPECT_LE(fits["ranks"][1]["peak_bytes"].get<int64_t>(), int64_t{3} << 30);
  EXPECT_GT(fits["ranks"][0]["peak_bytes"].get<int64_t>(), (int64_t{1} << 30) * 0.999);
  EXPECT_FALSE(plan(with(job, {"head.classes=" + std::to_string(most + 1)}))["fits"].get<bool>());
}

TEST(Plan, OfAWholeHeadHasAllClassesOnEachRank) {
  const Words job = {"embedding=32", "train.batch=64",          "ranks=3", "model=mlp", "head.classes=5003",
                     "threads=1",    "head.parallel=replicated"};
  const auto fits = plan(with(job, {"memory.limit=64M"}));
  EXPECT_TRUE(fits["fits"].get<bool>());
  EXPECT_TRUE(fits["largest_classes"].is_null());
  for (const auto& rank : fits["ranks"]) EXPECT_EQ(rank["classes"], 5003);
  const auto small = run_here(with(with({"plan"}, job), {"memory.limit=1M"})).out;
  EXPECT_NE(
      small.find("does not fit  memory.limit of rank 0 is 1,048,576 bytes, wanted more; with 5,003 classes rank 0 "
                 "needs "),
      small.npos)
      << small;
  EXPECT_NE(small.find(": split the classes with head.parallel=sharded, or give more memory\n"), small.npos) << small;
  const Words apart = {"parallel=ps", "ps.mode=async", "memory.limit=1M"};  // no class can be another rank's alone
  const auto kept = run_here(with(with({"plan"}, job), apart)).out;
  EXPECT_NE(kept.find(": lower ps.staleness, use ps.mode=sync, or give more memory\n"), kept.npos) << kept;
  EXPECT_EQ(kept.find("sharded"), kept.npos) << kept;
}

TEST(Plan, OfSampledClassesIsABound) {
  const Words head = {"model=none", "head.classes=5000", "embedding=32", "threads=1"};
  EXPECT_TRUE(plan(head)["is_exact"].get<bool>());
  EXPECT_FALSE(plan(with(head, {"head.sample=0.2"}))["is_exact"].get<bool>());
  const auto text = run_here(with({"plan", "head.sample=0.2"}, head)).out;
  EXPECT_NE(text.find("\nat most: each step draws its sampled classes\n"), text.npos) << text;
}

TEST(Plan, JudgesLimitsInApproximateTablesToo) {
  const auto verdict = [](const Words& words) {
    return run_here(with({"plan", "model=none", "threads=1"}, words)).out;
  };
  const Words large = {"head.classes=20000000", "embedding=512", "train.batch=512", "ranks=8"};
  const auto fits = verdict(with(large, {"memory.limit=20G"}));
  EXPECT_NE(fits.find("\nfits (about)  each rank stays within memory.limit\n"), fits.npos) << fits;
  const auto does_not = verdict(with(large, {"memory.limit=8G"}));
  EXPECT_NE(does_not.find("\ndoes not fit (about)  "), does_not.npos) << does_not;
  const auto exact = verdict({"head.classes=1000", "embedding=16", "memory.limit=1G"});
  EXPECT_NE(exact.find("\nfits  each rank stays within memory.limit\n"), exact.npos) << exact;
  EXPECT_EQ(verdict({"head.classes=1000", "embedding=16"}).find("fit"), std::string::npos);
}

TEST(Plan, JudgesNoBudgetThatItCannotPlan) {
  const auto large = plan({"model=resnet18", "data.size=64", "train.batch=1000000", "head.classes=50", "threads=1",
                           "recompute=optimal", "memory.budget=3G", "memory.limit=6G"});
  EXPECT_FALSE(large["is_exact"].get<bool>());
  EXPECT_TRUE(large["fits"].is_null());
  EXPECT_TRUE(large["recompute"].is_null());
  const auto roomy = plan({"model=resnet18", "data.size=64", "train.batch=1000000", "head.classes=50", "threads=1",
                           "recompute=optimal", "memory.budget=3G", "memory.limit=900T"});
  EXPECT_TRUE(roomy["fits"].get<bool>()) << "without recomputation already";
}

/// Each of two runs predicts what the other measures.
TEST(Plan, OfTheOtherFormStandsInTheReport) {
  const test::TemporaryFolder folder;
  std::map<std::string, nlohmann::json> memory;
  for (const std::string form : {"naive", "sharded"}) {
    memory[form] = json_of(
        run_tandem({"train", "data=synthetic", "model=mlp", "head.classes=20003", "embedding=64", "train.batch=64",
                    "train.steps=2", "ranks=3", "threads=1", "--json", "-", "head.parallel=" + form,
                    "report.compare=true", "out=" + (folder.path() / form).string()}))["memory"];
    EXPECT_NE(test::slurp(folder.path() / form / "report.html").find("predicted"), std::string::npos);
  }
  for (const auto& [form, other] : {std::pair{"naive", "sharded"}, std::pair{"sharded", "naive"}}) {
    const auto predicted = memory[other]["forms"][form]["ranks"];
    ASSERT_EQ(predicted.size(), 3U);
    for (size_t rank = 0; rank < 3; ++rank) {
      const auto peak = memory[form]["ranks"][rank]["train"]["peak_bytes"].get<int64_t>();
      EXPECT_GE(predicted[rank]["peak_bytes"].get<int64_t>(), peak) << form;
      EXPECT_LE(predicted[rank]["peak_bytes"].get<int64_t>(), peak + 1024) << form;
    }
  }
}

/// So with the classes over one stage of a pipeline, and over all.
TEST(Plan, OfTheOtherStagesStandsInTheReport) {
  const test::TemporaryFolder folder;
  std::map<std::string, nlohmann::json> memory;
  for (const std::string over : {"last", "all"}) {
    memory[over] = json_of(run_tandem({"train", "data=synthetic", "model=resnet_glyph", "head.classes=20003",
                                       "embedding=64", "train.batch=64", "train.steps=2", "ranks=3", "threads=1",
                                       "parallel=pipeline", "train.accumulate=4", "--json", "-", "head.over=" + over,
                                       "report.compare=true", "out=" + (folder.path() / over).string()}))["memory"];
  }
  for (const auto& [over, other, form] :
       {std::tuple{"last", "all", "of the last stage"}, std::tuple{"all", "last", "of all stages"}}) {
    const auto predicted = memory[other]["forms"][form]["ranks"];
    ASSERT_EQ(predicted.size(), 3U) << form;
    for (size_t rank = 0; rank < 3; ++rank) {
      const auto peak = memory[over]["ranks"][rank]["train"]["peak_bytes"].get<int64_t>();
      EXPECT_GE(predicted[rank]["peak_bytes"].get<int64_t>(), peak) << form;
      EXPECT_LE(predicted[rank]["peak_bytes"].get<int64_t>(), peak + 1024) << form;
    }
  }
}

TEST(Plan, DrawsTheForms) {
  const test::TemporaryFolder folder;
  const auto path = (folder.path() / "forms.svg").string();
  plan({"head.classes=1000000", "model=none", "ranks=2", "--figure", path});
  const auto svg = test::slurp(path);
  EXPECT_TRUE(svg.starts_with("<svg"));
  for (const char* form : {"naive", "data_parallel", "sharded", "blocks", "fused_update", "sampled"}) {
    EXPECT_NE(svg.find(form), std::string::npos) << form;
  }
}

/// What a job would refuse, its plan refuses.
TEST(Plan, RefusesWhatTrainingRefuses) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"head.sample=0.1", "head.lazy=exact", "train.optimizer=adamw"},
       "head.lazy is exact with train.optimizer=adamw"},
      {{"head.fused_update=true", "train.clip=1"}, "train.clip is 1 with head.fused_update"},
      {{"head.fused_update=true", "train.skip_nonfinite=3"},
       "train.skip_nonfinite is 3 with head.fused_update, which has moved some classes before the fault is seen"},
      {{"train.momentum=0"}, "train.nesterov is true with train.momentum 0"},
      {{"train.batch=2", "ranks=3"}, "train.batch is 2, wanted at least 3, one image a rank"},
      {{"head.sample=0.1", "head.parallel=replicated"}, "head.sample is 0.1 with head.parallel=replicated"},
      {{"head.sample=0.1", "head.smoothing=0.1"}, "head.sample is 0.1 with head.smoothing"},
      {{"model=mlp", "memory.limit=100K"}, "memory.limit of rank 0 is 102,400 bytes, wanted at least about "}};
  for (const auto& [words, text] : cases) {
    const Words job = with({"data=synthetic", "model=none", "head.classes=1000", "embedding=16"}, words);
    const auto planned = run_here(with({"plan"}, job)), trained = run_tandem(with({"train", "out=/nowhere/x"}, job));
    EXPECT_NE((planned.err + planned.out).find(text), std::string::npos) << planned.err << planned.out;
    EXPECT_EQ(trained.status, 78) << text;
    EXPECT_NE(trained.err.find("error: " + text), std::string::npos) << trained.err;
  }
}

TEST(Plan, FaultsAreNamed) {
  EXPECT_EQ(run_here({"plan", "head.classes=10", "model=none", "ranks=3", "memory.limit=1G,2G"}).err,
            "error: memory.limit has 2 sizes, wanted 1 or 3, one a rank\n");
  const auto ended = run_tandem({"train", "data=synthetic", "model=none", "head.classes=1000000", "embedding=512",
                                 "ranks=2", "memory.limit=100M", "report.compare=false"});
  EXPECT_EQ(ended.status, 78);
  EXPECT_NE(ended.err.find("error: head.classes is 1000000, wanted at most about "), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find(" with this memory.limit; with 500,000 classes rank 0 needs about "), std::string::npos);
  EXPECT_NE(ended.err.find(" bytes at its peak, in block 'classifier': add ranks or memory, or see the forms of "),
            std::string::npos)
      << ended.err;
}

TEST(Plan, TellsTheScheduleOfAPipeline) {
  const Words job = {"data=synthetic", "data.size=16",      "head.classes=11",    "model=vit_tiny", "model.patch=8",
                     "ranks=4",        "parallel=pipeline", "train.accumulate=8", "train.batch=16", "threads=1"};
  const auto halves = plan(with(job, {"pipeline.costs=1,1,1", "pipeline.schedule=v-half"}))["schedule"];
  EXPECT_EQ(halves["name"], "v-half");
  EXPECT_EQ(halves["makespan"], 26.5);
  EXPECT_EQ(halves["ranks"].size(), 4U);
  EXPECT_EQ(halves["ranks"][2]["span"], 25.5);
  EXPECT_EQ(halves["ranks"][0]["held"], 3);
  const auto plain = plan(with(job, {"pipeline.costs=2,3,1"}))["schedule"];  // 1f1b
  EXPECT_EQ(plain["makespan"], (8 + 3) * 6);
  EXPECT_NEAR(plain["bubble"].get<double>(), 3.0 / 11, 1e-12);
  EXPECT_EQ(plain["ranks"][1]["held_graphs"], 3);
  EXPECT_EQ(plain["ranks"][1]["held_weight_work"], 0);
  const auto makespan = [&](const Words& more) {
    return plan(with(job, with({"pipeline.head_cost=1"}, more)))["schedule"]["makespan"].get<double>();
  };
  EXPECT_EQ(makespan({"head.over=last"}), 65);  // 8 * (3 + 4) and the bubble
  EXPECT_EQ(makespan({"head.over=pipeline", "pipeline.schedule=gpipe"}), 41);
  EXPECT_EQ(makespan({"head.over=pipeline"}), 37);
  EXPECT_EQ(plan(with(job, {"head.over=all"}))["schedule"]["ranks"][1]["held"], 4);  // min(m, p - r + 1)
  EXPECT_TRUE(plan({"data=synthetic", "head.classes=11"})["schedule"].is_null());
  EXPECT_EQ(run_here(with({"plan"}, with(job, {"pipeline.costs=1,1"}))).err,
            "error: pipeline.costs has 2 numbers, wanted 3: give those of forward, input gradients and weight "
            "gradients: 1,1,1\n");
}

TEST(Plan, FitsASchedule) {
  const Words job = {"data=synthetic",    "data.size=16",       "head.classes=11", "model=resnet_glyph", "ranks=2",
                     "parallel=pipeline", "train.accumulate=4", "train.batch=32",  "threads=1"};
  const auto least = plan(with(job, {"pipeline.schedule=v-min"}))["ranks"];
  int64_t limit = 0;
  for (const auto& rank : least) limit = std::max(limit, rank["predicted_peak_bytes"].get<int64_t>());
  const Words fit = with(job, {"pipeline.schedule=fit", "memory.limit=" + std::to_string(limit)});
  const auto fitting = plan(fit);
  for (const auto& rank : fitting["ranks"]) EXPECT_LE(rank["predicted_peak_bytes"].get<int64_t>(), limit);
  const test::TemporaryFolder folder;
  const auto run = (folder.path() / "run").string();
  const auto trained = run_tandem(with({"train", "train.steps=2", "out=" + run}, fit));
  EXPECT_EQ(trained.status, 0) << trained.err;
  EXPECT_NE(trained.out.find(", predicted "), std::string::npos) << trained.out;
  EXPECT_EQ(test::slurp(folder.path() / "run" / "settings.toml").find("\"fit\""), std::string::npos);
  const auto none = run_here(with({"plan"}, with(job, {"pipeline.schedule=fit", "memory.limit=100K"})));
  EXPECT_EQ(none.status, 78);
  EXPECT_NE(none.err.find("error: memory.limit is 102,400 bytes, wanted at least "), std::string::npos) << none.err;
  EXPECT_EQ(run_here(with({"memory", "pipeline.schedule=fit"}, job)).err,
            "error: pipeline.schedule is fit, wanted a plan: tandem plan with the same settings finds one\n");
  EXPECT_EQ(run_here(with({"plan", "pipeline.schedule=v-held", "pipeline.held=1"}, job)).err,
            "error: pipeline.held is 1 with 2 ranks along pipeline, wanted at least 4: pipeline.held=0 is the least\n");
}

TEST(Plan, SearchesForAPlan) {
  const test::TemporaryFolder folder;
  const auto figure = (folder.path() / "plans.svg").string();
  const Words job = {"data=synthetic", "data.size=16",   "head.classes=11", "model=resnet_glyph",
                     "ranks=4",        "train.batch=32", "threads=1",       "parallel=auto"};
  const auto all = json_of(run_here(with({"plan", "--json", "-", "--figure", figure}, job)));
  EXPECT_TRUE(std::filesystem::exists(figure));
  ASSERT_GE(all["plans"].size(), 2U);
  EXPECT_TRUE(all["plans"][0]["is_chosen"]);
  EXPECT_GT(all["lower_bound"], 0);
  EXPECT_NEAR(all["gap"], all["plans"][0]["seconds"].get<double>() / all["lower_bound"].get<double>() - 1, 1e-12);
  for (const auto* key : {"mesh", "schedule", "seconds", "peak_bytes", "settings"}) {
    EXPECT_TRUE(all["plans"][1].contains(key)) << key;
  }
  auto chosen = job;
  for (const auto& word : all["plans"].back()["settings"]) chosen.push_back(word);
  expect_equal(chosen);
  const auto least = all["plans"].back()["peak_bytes"].get<int64_t>();
  const auto tight = plan(with(job, {"memory.limit=" + std::to_string(least)}));
  EXPECT_EQ(tight["ranks"][0]["predicted_peak_bytes"].get<int64_t>() <= least, true);
  const auto none = run_here(with({"plan"}, with(job, {"memory.limit=100K"})));
  EXPECT_EQ(none.status, 78);
  EXPECT_NE(none.err.find("error: memory.limit is 102,400 bytes, wanted at least "), std::string::npos) << none.err;
}

}  // namespace
}  // namespace tandem::cli
