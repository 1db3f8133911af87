#include "tandem/job/detail/plan_types.h"

#include <gtest/gtest.h>

#include "tests/job/job_of.h"

namespace tandem::job {
namespace {

/// Each model that can be divided, and each way to normalise, on two and on three axes.
TEST(PlanTypes, AreThoseOfOneDevice) {
  for (const auto& mesh : {std::vector<std::string>{"ranks=2", "parallel=tensor"},
                           {"ranks=8", "parallel=fsdp", "mesh.shard=2", "mesh.tensor=2"}}) {
    std::vector<std::vector<std::string>> models = {{"model=vit_tiny", "model.patch=8", "model.dropout=0.1"},
                                                    {"model=vit_tiny", "model.patch=8", "model.sequence_parallel=true"},
                                                    {"model=mlp", "model.dropout=0.1"},
                                                    {"model=none"}};
    for (const auto* norm : {"batch", "group", "none", "abn-elu", "sync", "ghost"}) {
      models.push_back({"model=resnet_glyph", std::string("model.norm=") + norm});
    }
    models.push_back({"model=resnet50"});
    for (auto words : models) {
      words.insert(words.end(), mesh.begin(), mesh.end());
      words.insert(words.end(), {"data=synthetic", "data.size=16", "head.classes=11", "embedding=256"});
      SCOPED_TRACE(words[0] + " " + words[1]);
      const auto job = job_of(words);
      EXPECT_NO_THROW(check_types(job, shape_of(job)));
    }
  }
}

}  // namespace
}  // namespace tandem::job
