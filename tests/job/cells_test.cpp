#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/base/error.h"
#include "tandem/comm/world.h"
#include "tandem/job/parts.h"
#include "tandem/models/genotype.h"
#include "tests/job/step_peaks.h"
#include "tests/job/whole_run.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

// model=darts-v2 and its like: networks of cells, and their linear classifier.
namespace tandem::job {
namespace {

const Words kSmall = {"model=darts-v2",          "model.cells=3",       "model.channels=4",
                      "model.auxiliary=0.4",     "data.size=8",         "train.batch=13",
                      "train.precision=float64", "model.drop_path=0.3", "train.lr=0.02"};

double difference(const WholeRun& one, const WholeRun& other) {
  double most = one.losses.size() == other.losses.size() ? 0 : 1;
  for (size_t i = 0; i < one.losses.size(); ++i) {
    most = std::max(most, std::abs(one.losses[i] - other.losses[i]) / one.losses[i]);
  }
  return most;
}

TEST(Cells, AreAsPublishedUnlessTheSettingsSayOtherwise) {
  const auto job = job_of({"model=darts-v2", "data=synthetic"});
  EXPECT_EQ(job.model.embedding, 0);
  EXPECT_EQ(job.model.features, 576);
  EXPECT_EQ(job.head.options.columns(), 577);
  EXPECT_EQ(job.settings.get_string("head"), "linear");
  const auto other = job_of({"model=darts-v2", "data=synthetic", "embedding=64", "head=arcface", "model.cells=8"});
  EXPECT_EQ(other.model.features, 64);
  EXPECT_EQ(other.head.options.columns(), 64);
  EXPECT_EQ(job_of({"model=resnet50", "data=synthetic", "embedding=0"}).model.features, 2048);
}

TEST(Cells, OfAFileAreKnownByWhatItHolds) {
  const test::TemporaryFolder folder;
  const auto path = (folder / "found.txt").string();
  const auto& genotype = *models::known_genotype("pc-darts");
  test::spill(path, "found = " + models::to_text(genotype, models::GenotypeForm::nested));
  const auto job = job_of({"model=genotype:" + path, "data=synthetic"});
  EXPECT_EQ(job.model.name, models::to_text(genotype));
  EXPECT_EQ(job.model.features, 576);
  auto settings = job.settings;  // as a run's folder holds them: the file may be gone
  std::filesystem::remove(path);
  EXPECT_EQ(read_job(settings).model.name, job.model.name);
}

const Words kBench201 = {"data.size=8",    "model.channels=4",   "model.cells=3",           "train.batch=13",
                         "train.lr=0.02",  "model.norm=group",   "train.precision=float64", "model.drop_path=0.3",
                         "data=synthetic", "model.auxiliary=0.4"};

/// The cell that NAS-Bench-201 finds best on CIFAR-10.
const std::string kBestCell =
    "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|";

TEST(Cells, OfBench201AreKnownByWhatTheFileHolds) {
  const test::TemporaryFolder folder;
  const auto path = (folder / "found.txt").string();
  test::spill(path, "\n" + kBestCell + "\n");
  const auto job = job_of({"model=genotype:" + path, "data=synthetic"});
  EXPECT_EQ(job.model.name, kBestCell);
  EXPECT_EQ(job.model.features, 64);
  EXPECT_EQ(job.model.cells, 15);
  EXPECT_EQ(identity(job, Patterns()), identity(job_of({"model=" + kBestCell, "data=synthetic"}), Patterns()));
  test::spill(path, "|nor_conv_3x3~1|");
  EXPECT_THROW(job_of({"model=genotype:" + path, "data=synthetic"}), DataError);
}

/// An auxiliary classifier, which these networks do not have, is without effect.
TEST(Cells, OfBench201TrainOnRanksAsOnOneDevice) {
  const auto words = with(kBench201, {"model=" + kBestCell});
  const auto one = whole_run(words, 3);
  for (const Words& more : {Words{"ranks=2"}, Words{"ranks=3", "parallel=fsdp"}, Words{"ranks=2", "recompute=log"}}) {
    EXPECT_LT(difference(whole_run(with(words, more), 3), one), 1e-12) << testing::PrintToString(more);
  }
  EXPECT_EQ(whole_run(with(words, {"model.auxiliary=0"}), 3).hash, one.hash);
}

TEST(Cells, OfOtherSizesAreAnotherJob) {
  const Patterns patterns;
  const auto identity_of = [&](const Words& more) {
    return identity(job_of(with({"model=darts-v2", "data=synthetic"}, more)), patterns);
  };
  const auto own = identity_of({});
  EXPECT_EQ(identity_of({"model.cells=20"}), own);
  for (const std::string more : {"model.cells=8", "model.channels=16", "model.stem=imagenet", "model=darts-v1",
                                 "model.auxiliary=0.4", "model.drop_path=0.2"}) {
    EXPECT_NE(identity_of({more}), own) << more;
  }
}

TEST(Cells, WhatIsNoGenotypeIsRefused) {
  const test::TemporaryFolder folder;
  const auto path = (folder / "found.txt").string();
  test::spill(path, "Genotype(normal=[('sep_conv_3x3', 0)])");
  const auto words = Words{"model=genotype:" + path, "data=synthetic"};
  EXPECT_THROW(job_of(words), DataError);
  EXPECT_EQ(test::text_of([&] { job_of(words); }), path + ": the genotype has no normal_concat");
  EXPECT_THROW(job_of({"model=genotype:/nowhere", "data=synthetic"}), IoError);
  EXPECT_THROW(job_of({"model=darts-v3", "data=synthetic"}), SettingsError);
}

/// Without batch statistics, which are of a rank's images.
TEST(Cells, TrainOnRanksAsOnOneDevice) {
  const auto words = with(kSmall, {"model.norm=group"});
  const auto one = whole_run(words, 3);
  for (const Words& more : {Words{"ranks=2"}, Words{"ranks=3", "parallel=fsdp"}, Words{"ranks=2", "parallel=zero1"},
                            Words{"ranks=3", "head.parallel=replicated"}, Words{"ranks=2", "head.fused_update=true"},
                            Words{"ranks=3", "parallel=dp"}, Words{"ranks=3", "parallel=ps"}}) {
    EXPECT_LT(difference(whole_run(with(words, more), 3), one), 1e-12) << testing::PrintToString(more);
  }
}

/// In the first step no path is dropped yet.
TEST(Cells, ASecondClassifiersLossCountsAsMuchAsItsShare) {
  const auto loss = [](const std::string& share) {
    return whole_run(with(kSmall, {"model.auxiliary=" + share}), 1).losses[0];
  };
  const double alone = loss("0"), second = (loss("0.4") - alone) / 0.4;
  const auto classes = static_cast<double>(Patterns().num_classes());
  EXPECT_NEAR(second, std::log(classes), 0.1) << "of a classifier that knows nothing";
  EXPECT_NEAR(loss("0.8") - alone, 0.8 * second, 1e-12);
}

TEST(Cells, ASecondClassifierNeedsNoTest) {
  const auto job = job_of(kSmall);
  comm::run_ranks(1, [&](comm::ProcessGroup& group) {
    const auto parts = assemble(job, {10, {3, 8, 8}}, group);
    parts.task->set_training(false);
    data::Batch batch{.images = at::rand({3, 3, 8, 8}), .labels = at::arange(3)};
    batch.global_size = 3;
    EXPECT_EQ(parts.task->embed(batch).sizes(), (std::vector<int64_t>{3, job.model.features}));
  });
}

TEST(Cells, RecomputedTrainAsBefore) {
  const auto one = whole_run(kSmall, 3);
  EXPECT_EQ(whole_run(with(kSmall, {"recompute=sqrt"}), 3).hash, one.hash);
}

TEST(Cells, TheirPeaksArePredicted) {
  for (const Words& more : {Words{}, Words{"ranks=3", "parallel=fsdp"}, Words{"ranks=2", "recompute=log"},
                            Words{"ranks=3", "parallel=dp"}, Words{"ranks=2", "parallel=zero2"}}) {
    for (const auto& [predicted, measured] : peaks_of(with(with(kSmall, {"train.precision=float32"}), more))) {
      EXPECT_EQ(predicted, measured) << testing::PrintToString(more);
    }
  }
}

}  // namespace
}  // namespace tandem::job
