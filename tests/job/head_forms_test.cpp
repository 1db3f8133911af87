#include <gtest/gtest.h>

#include <cmath>

#include "tandem/comm/agree.h"
#include "tandem/comm/world.h"
#include "tandem/job/parts.h"
#include "tandem/memory/meter.h"
#include "tests/job/job_of.h"
#include "tests/support/files.h"
#include "tests/train/loss_recorder.h"

namespace tandem::job {
namespace {

const Words kJob = {"model=mlp",    "train.precision=float64", "train.batch=23", "train.lr=0.05",
                    "embedding=16", "head.smoothing=0.1",      "train.clip=1",   "train.log_every=1"};

struct Trained {
  std::vector<double> losses;
  double top1 = 0;
  int64_t gradient_bytes = 0, gradient_calls = 0;  // sent by all ranks in backward, outside of the head
};

/// Trains to step `steps`, from the newest checkpoint if there is one, and saves.
Trained train(const Words& words, int64_t steps, train::CheckpointStore& store) {
  memory::install_meter();
  const Patterns patterns;
  const auto job = job_of(with(kJob, words));
  Trained trained;
  comm::run_ranks(job.parallel.ranks,
                  [&](comm::ProcessGroup& group) {
                    const auto loader = training_loader(job, patterns, group);
                    const auto test = evaluation_loader(job, patterns, group);
                    const auto shape = shape_of(job, patterns);
                    const auto [mesh, task, trace, step, search] = assemble(job, shape, group);
                    auto options = trainer_options(job, loader->batches_per_epoch());
                    options.steps = steps;
                    options.schedule.steps = 12;
                    options.evaluate_every = options.checkpoint_every = 0;
                    train::LossRecorder recorder;
                    train::Trainer trainer(*step, *loader, test.get(), options, &store, group);
                    trainer.resume(store, std::nullopt);
                    group.meter().reset();
                    const auto outcome = trainer.run(recorder);
                    const auto wire = group.meter().counts();
                    const auto sums = wire.contains("all_reduce")
                                          ? wire.at("all_reduce").phases[static_cast<size_t>(Phase::backward)]
                                          : comm::WireCount();
                    const auto bytes = comm::reduce_number(sums.bytes, comm::Reduce::sum, group);
                    if (group.rank() == 0) {
                      trained = {recorder.losses, outcome.scores.value("top1"), bytes, sums.calls};
                    }
                  },
                  {.threads = 1});
  return trained;
}

Trained train(const Words& words) {
  const test::TemporaryFolder folder;
  train::CheckpointStore store(folder.path());
  return train(words, 12, store);
}

TEST(HeadForms, TrainAsOneDevice) {
  const auto one = train({"ranks=1"});
  for (const auto& form : head_forms()) {
    for (const std::string ranks : {"1", "2", "3", "4"}) {
      for (const std::string parts : {"1", "3"}) {
        const auto several =
            train({"head.parallel=" + std::string(form.name), "ranks=" + ranks, "train.accumulate=" + parts});
        ASSERT_EQ(several.losses.size(), 12U);
        for (size_t step = 0; step < 12; ++step) {
          EXPECT_NEAR(several.losses[step], one.losses[step], 1e-12) << form.name << ' ' << ranks << ' ' << parts;
        }
        EXPECT_EQ(several.top1, one.top1) << form.name;
      }
    }
  }
}

/// 3 ranks with one form, then 2 with the other.
TEST(HeadForms, AWholeHeadResumesASplitOneAndBack) {
  const auto one = train({"ranks=1"});
  for (const bool first_is_whole : {false, true}) {
    const auto form = [&](bool is_whole) {
      return "head.parallel=" + std::string(is_whole ? "replicated" : "sharded");
    };
    const test::TemporaryFolder folder;
    train::CheckpointStore store(folder.path());
    train({form(first_is_whole), "ranks=3"}, 5, store);
    const auto rest = train({form(!first_is_whole), "ranks=2"}, 12, store);
    ASSERT_EQ(rest.losses.size(), 7U);
    for (size_t step = 0; step < 7; ++step) EXPECT_NEAR(rest.losses[step], one.losses[step + 5], 1e-12);
  }
}

/// 2 (N - 1) S in a step: S is that of the backbone, and of a whole head too.
TEST(HeadForms, AWholeHeadsGradientTravels) {
  const int64_t head = 11 * 16 * 8;
  const auto split = train({"head.parallel=sharded", "ranks=3"}),
             whole = train({"head.parallel=replicated", "ranks=3"});
  EXPECT_EQ(whole.gradient_bytes - split.gradient_bytes, 12 * 2 * 2 * head);
}

}  // namespace
}  // namespace tandem::job
