#include <gtest/gtest.h>

#include <chrono>

#include "tandem/base/error.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/world.h"
#include "tandem/job/parts.h"
#include "tandem/memory/chain.h"
#include "tandem/memory/meter.h"
#include "tests/job/job_of.h"

// A job whose model is divided over ranks: what it holds, what it sends, and what becomes of a rank's fault.
namespace tandem::job {
namespace {

constexpr int64_t kBatch = 5, kTokens = 5, kWidth = 192, kBlocks = 12;
const DataShape kShape = {.classes = 7, .image = {1, 16, 16}};

Job vit(const Words& more) {
  return job_of(with({"model=vit_tiny", "model.patch=8", "model.heads=6", "embedding=0", "head=softmax",
                      "head.parallel=replicated", "train.clip=0", "train.batch=5", "threads=1"},
                     more));
}

data::Batch batch() {
  data::Batch batch;
  batch.images = at::sin(at::arange(kBatch * 256, at::kFloat)).view({kBatch, 1, 16, 16});
  batch.labels = at::arange(kBatch);
  batch.global_size = kBatch;
  return batch;
}

/// Two all_reduces of the tokens forward and two backward a block; of the tokens' parts an all_gather and a
/// reduce_scatter each way instead.
TEST(DividedJob, SendsWhatItsLayersSay) {
  for (const int ranks : {2, 3, 4, 5}) {
    for (const bool divides_tokens : {false, true}) {
      const auto job = vit({"ranks=" + std::to_string(ranks), "parallel=tensor",
                            "model.sequence_parallel=" + std::string(divides_tokens ? "true" : "false")});
      comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
        const auto parts = assemble(job, kShape, group);
        group.meter().reset();
        parts.step->run(batch(), 0, 0.001);
        const auto counts = group.meter().counts();
        int64_t sent = 0;
        for (const auto& [operation, count] : counts) sent += count.bytes;
        const int64_t all = comm::reduce_number(sent, comm::Reduce::sum, group);
        constexpr int64_t kBytes = kBatch * kTokens * kWidth * 4;
        if (!divides_tokens) {
          EXPECT_EQ(counts.at("all_reduce").calls, 4 * kBlocks);
          EXPECT_EQ(all, 4 * kBlocks * 2 * (ranks - 1) * kBytes) << ranks;
          return;
        }
        // Besides, the gradients of 2 norms and 2 biases a block are sums, and the first and last tokens are exchanged.
        const int64_t sums = kBlocks * (2 * 2 + 2) * kWidth * 4 * 2 * (ranks - 1);
        const int64_t ends = 2 * (ranks - 1) * kBytes;
        EXPECT_EQ(all, (4 * kBlocks * 2 + 2) * (ranks - 1) * kBytes - ends + sums + ends) << ranks;
      });
    }
  }
}

/// Of 12 D^2 + 7 D numbers a block, and none of the rest.
TEST(DividedJob, HoldsItsPartOfTheState) {
  memory::install_meter();
  for (const int ranks : {1, 2, 3}) {
    const auto job = vit({"ranks=" + std::to_string(ranks), "parallel=tensor"});
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      const auto before = memory::account(group.rank());
      const auto parts = assemble(job, kShape, group);
      parts.step->run(batch(), 0, 0.001);
      const auto after = memory::account(group.rank());
      const auto grown = [&](Category category) {
        return after.live[static_cast<size_t>(category)] - before.live[static_cast<size_t>(category)];
      };
      const int64_t divided = kBlocks * (12 * kWidth * kWidth + 7 * kWidth);
      const int64_t whole = kWidth * (64 + 1) + kWidth * (kTokens + 1) + kBlocks * 6 * kWidth + 2 * kWidth + 7 * kWidth;
      EXPECT_EQ(grown(Category::parameters), 4 * (whole + divided / ranks)) << ranks;
      EXPECT_GE(grown(Category::optimizer), 2 * 4 * (whole + divided / ranks)) << ranks;
      EXPECT_LE(grown(Category::optimizer), 2 * 4 * (whole + divided / ranks) + 4096) << "and counts of steps";
    });
  }
}

/// The others wait for it in the exchange that follows.
TEST(DividedJob, ARankThatFailsInTheMiddleOfABlockReleasesTheOthers) {
  const auto job = vit({"ranks=3", "parallel=tensor"});
  const auto start = std::chrono::steady_clock::now();
  try {
    comm::run_ranks(3, [&](comm::ProcessGroup& group) {
      const auto parts = assemble(job, kShape, group);
      auto& block = parts.task->replicated_chain()->blocks.at(5);
      if (group.rank() == 1) {
        block.forward = [attention = block.parts.at(0).forward](const memory::Flow& x) {
          attention(x);
          throw DataError("image 'a.png' is not an image");
          return x;
        };
      }
      parts.step->run(batch(), 0, 0.001);
    });
    FAIL() << "nothing thrown";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1 of 3"), std::string::npos) << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace tandem::job
