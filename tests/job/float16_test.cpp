#include <gtest/gtest.h>

#include "tests/job/whole_run.h"
#include "tests/support/files.h"

// train.precision=float16: whole jobs.
namespace tandem::job {
namespace {

WholeRun run_of(const Words& more, int64_t steps, const std::filesystem::path& store = {}) {
  return whole_run(with({"embedding=16", "train.batch=20", "train.lr=1e-4"}, more), steps, store);
}

const Words kForms[] = {{"model=mlp"},
                        {"model=resnet_glyph"},
                        {"model=resnet_glyph", "model.norm=group", "ranks=3", "train.accumulate=2"},
                        {"model=mlp", "ranks=3", "parallel=fsdp", "recompute=log"},
                        {"model=mlp", "ranks=2", "parallel=local-sgd", "local_sgd.every=3"}};

/// With rounded numbers, losses of the first steps are those of float32 but for 2 %.
TEST(Float16, TrainsAsFloat32) {
  for (auto words : kForms) {
    SCOPED_TRACE(testing::PrintToString(words));
    const auto exact = run_of(words, 6);
    words.insert(words.end(), {"train.precision=float16", "train.loss_scale=64"});
    const auto found = run_of(words, 6);
    EXPECT_FALSE(value_of(exact.facts, "loss_scale"));
    EXPECT_EQ(value_of(found.facts, "left_out_steps").value(), 0);
    EXPECT_NE(found.losses, exact.losses);
    for (size_t i = 0; i < exact.losses.size(); ++i) {
      EXPECT_NEAR(found.losses.at(i), exact.losses[i], 0.02 * exact.losses[i]) << i;
    }
  }
}

/// The scale falls until gradients are finite, and grows in each step that is not left out, over a resume too.
TEST(Float16, AResumedRunHasTheSameBits) {
  for (auto words : kForms) {
    SCOPED_TRACE(testing::PrintToString(words));
    words.insert(words.end(), {"train.precision=float16", "train.loss_scale_growth=1", "checkpoint.every=6"});
    const test::TemporaryFolder whole_folder, folder;
    const auto whole = run_of(words, 12, whole_folder.path());
    run_of(words, 6, folder.path());
    const auto found = run_of(words, 12, folder.path());
    EXPECT_GT(value_of(whole.facts, "left_out_steps").value(), 0);
    EXPECT_LT(value_of(whole.facts, "left_out_steps").value(), 12);
    EXPECT_EQ(value_of(found.facts, "loss_scale").value(), value_of(whole.facts, "loss_scale").value());
    EXPECT_EQ(value_of(found.facts, "left_out_steps").value(), value_of(whole.facts, "left_out_steps").value());
    EXPECT_EQ(found.losses, std::vector<double>(whole.losses.begin() + 6, whole.losses.end()));
    EXPECT_EQ(found.state, whole.state);
  }
}

}  // namespace
}  // namespace tandem::job
