#include "tandem/job/sections/combinations.h"

#include <gtest/gtest.h>

#include <set>

#include "tandem/base/error.h"
#include "tests/job/job_of.h"
#include "tests/support/text_of.h"

namespace tandem::job {
namespace {

/// A job that a row refuses; `key` and `other` name the row.
struct Refused {
  std::string key, other;
  Words words;
};

const Words kAsync = {"parallel=ps", "ps.mode=async", "head.parallel=replicated"};

const std::vector<Refused> kRefused = {
    {"model.norm", "parallel=", {"model.norm=sync", "parallel=dp", "ranks=2"}},
    {"trace.blocks", "parallel=", {"trace.blocks=hash", "parallel=dp", "ranks=2"}},
    {"trace.blocks", "ps.mode", with(kAsync, {"trace.blocks=hash", "ranks=2"})},
    {"ddp.hook", "train.shards", {"ddp.hook=fp16", "ranks=2", "train.shards=4"}},
    {"ddp.hook", "train.precision=", {"ddp.hook=powersgd", "ranks=2", "train.precision=float16"}},
    {"ddp.hook", "train.skip_nonfinite", {"ddp.hook=powersgd", "ranks=2", "train.skip_nonfinite=1"}},
    {"ps.mode", "head.parallel=", {"parallel=ps", "ps.mode=async", "ranks=2"}},
    {"ps.mode", "mesh.tensor", with(kAsync, {"ranks=4", "mesh.tensor=2", "model=none"})},
    {"ps.mode", "train.skip_nonfinite", with(kAsync, {"ranks=2", "train.skip_nonfinite=1"})},
    {"ps.mode", "train.precision=", with(kAsync, {"ranks=2", "train.precision=float16"})},
    {"head.sample", "head.parallel=", {"head.sample=0.5", "head.parallel=replicated"}},
    {"head.sample", "head.smoothing", {"head.sample=0.5", "head.smoothing=0.1"}},
    {"head.lazy", "train.optimizer=", {"head.sample=0.5", "head.lazy=exact", "train.optimizer=adamw"}},
    {"train.ema", "head.lazy", {"train.ema=0.9", "head.sample=0.5", "head.lazy=exact"}},
    {"train.clip", "head.fused_update", {"train.clip=1", "head.fused_update=true"}},
    {"train.precision", "head.fused_update", {"train.precision=float16", "head.fused_update=true"}},
    {"train.skip_nonfinite", "head.fused_update", {"train.skip_nonfinite=1", "head.fused_update=true"}},
    {"train.accumulate", "head.fused_update", {"train.accumulate=2", "head.fused_update=true"}},
    {"train.accumulate", "head.sample", {"train.accumulate=2", "head.sample=0.5"}},
    {"train.shards", "parallel=", {"train.shards=4", "parallel=ps", "ranks=2"}},
    {"train.shards", "mesh.shard", {"train.shards=4", "parallel=fsdp", "ranks=4", "mesh.shard=2"}},
    {"train.shards", "mesh.tensor", {"train.shards=4", "ranks=2", "parallel=tensor", "model=none"}},
    {"train.shards", "mesh.pipeline", {"train.shards=4", "ranks=2", "parallel=pipeline"}},
    {"train.shards", "train.accumulate", {"train.shards=4", "train.accumulate=2"}},
    {"train.shards", "model.norm=", {"train.shards=4", "model.norm=sync"}},
    {"train.shards", "head.parallel=", {"train.shards=4", "head.parallel=naive"}},
    {"train.shards", "head.sample", {"train.shards=4", "head.sample=0.5"}},
    {"train.shards", "head.fused_update", {"train.shards=4", "head.fused_update=true"}},
    {"train.shards", "memory.limit", {"train.shards=4", "memory.limit=1G"}},
    {"memory.limit", "head.over=", {"memory.limit=1G", "ranks=4", "mesh.tensor=2", "head.over=data", "model=none"}},
    {"mesh.shard", "parallel=", {"mesh.shard=2", "ranks=4"}},
    {"mesh.tensor", "parallel=", {"mesh.tensor=2", "parallel=dp", "ranks=4", "model=none"}},
    {"mesh.pipeline", "parallel=", {"mesh.pipeline=2", "parallel=ps", "ranks=4"}},
    {"mesh.pipeline", "ddp.hook", {"mesh.pipeline=2", "ddp.hook=post-local-sgd", "ranks=4"}},
    {"mesh.pipeline", "fsdp.reshard", {"mesh.pipeline=2", "parallel=fsdp", "ranks=4", "fsdp.reshard=2"}},
    {"head.sample", "head.over=", {"mesh.pipeline=2", "ranks=2", "head.over=all", "head.sample=0.5"}},
    {"mesh.pipeline", "recompute=", {"mesh.pipeline=2", "ranks=2", "recompute=optimal", "memory.budget=1G"}},
    {"mesh.pipeline", "trace.blocks", {"mesh.pipeline=2", "ranks=2", "trace.blocks=hash"}},
    {"mesh.pipeline", "memory.limit", {"mesh.pipeline=2", "ranks=2", "memory.limit=1G"}},
    {"mesh.pipeline", "head.fused_update", {"mesh.pipeline=2", "ranks=2", "head.fused_update=true"}},
    {"mesh.pipeline", "model.auxiliary", {"mesh.pipeline=2", "ranks=2", "model=darts-v2", "model.auxiliary=0.4"}},
    {"mesh.tensor", "model=", {"mesh.tensor=2", "ranks=4", "model=darts-v2"}},
    {"mesh.pipeline", "model=", {"mesh.pipeline=2", "ranks=4", "model=none"}},
};

std::string text_of(const Words& words) {
  return test::text_of<SettingsError>([&] { check_training(job_of(words)); });
}

/// A row that no job can have is dead.
TEST(Combinations, EachRowRefusesAJob) {
  for (const auto& row : combinations()) {
    const auto place = std::ranges::find_if(
        kRefused, [&](const Refused& job) { return job.key == row.key && job.other == row.other; });
    ASSERT_NE(place, kRefused.end()) << row.key << " with " << row.other;
    const auto text = text_of(place->words);
    EXPECT_TRUE(text.starts_with(std::string(row.key) + " is ")) << text;
    EXPECT_NE(text.find(" with " + std::string(row.other)), text.npos) << text;
    EXPECT_TRUE(text.ends_with(", " + std::string(row.why) + ": " + row.remedy)) << text;
  }
  EXPECT_EQ(kRefused.size(), combinations().size());
}

TEST(Combinations, EachRowNamesSettings) {
  std::set<std::string> rows;
  for (const auto& row : combinations()) {
    EXPECT_NE(settings::find_setting(schema(), row.key), nullptr) << row.key;
    EXPECT_NE(settings::find_setting(schema(), row.other.substr(0, row.other.find('='))), nullptr) << row.other;
    EXPECT_TRUE(rows.insert(std::string(row.key) + ' ' + std::string(row.other)).second) << row.key << row.other;
  }
}

TEST(Combinations, AreToldInOneLine) {
  EXPECT_EQ(text_of({"mesh.tensor=2", "ranks=2", "model=darts-v2"}),
            "mesh.tensor is 2 with model=darts-v2, whose layer stem is not divided along tensor: leave "
            "mesh.tensor out, and use parallel=ddp or another");
  EXPECT_EQ(text_of({"fsdp.shard=2", "ranks=4"}),
            "mesh.shard is 2 with parallel=ddp, which divides no parameters, wanted 0: leave mesh.shard out, or use "
            "parallel=zero1, parallel=zero2 or parallel=fsdp");
}

}  // namespace
}  // namespace tandem::job
