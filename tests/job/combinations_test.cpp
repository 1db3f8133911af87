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

const std::vector<Refused> kRefused = {
    {"mesh.shard", "parallel=", {"mesh.shard=2", "ranks=4"}},
    {"mesh.tensor", "parallel=", {"mesh.tensor=2", "parallel=dp", "ranks=4", "model=none"}},
    {"mesh.pipeline", "parallel=", {"mesh.pipeline=2", "parallel=dp", "ranks=4"}},
    {"mesh.tensor", "model=", {"mesh.tensor=2", "ranks=4"}},
    {"mesh.pipeline", "model=", {"mesh.pipeline=2", "ranks=4"}},
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
  EXPECT_EQ(text_of({"mesh.tensor=2", "ranks=2"}),
            "mesh.tensor is 2 with model=resnet_glyph, which is not divided along tensor, wanted 1: leave mesh.tensor "
            "out, and use parallel=ddp or another");
  EXPECT_EQ(text_of({"fsdp.shard=2", "ranks=4"}),
            "mesh.shard is 2 with parallel=ddp, which divides no parameters, wanted 0: leave mesh.shard out, or use "
            "parallel=zero1, parallel=zero2 or parallel=fsdp");
}

}  // namespace
}  // namespace tandem::job
