#include "tandem/train/reshard.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/comm/split.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::train {
namespace {

using test::TemporaryFolder;
using test::text_of;

constexpr int64_t kRows = 11, kStep = 7;

Tensor whole(const std::string& name) {
  const double first = name == "head.weight" ? 0 : 100;
  return at::arange(kRows * 3, at::kDouble).reshape({kRows, 3}) + first;
}

/// A backbone's weight, a split weight and its momentum, on uneven ranks.
void write_sample(const std::filesystem::path& folder, const std::vector<int64_t>& counts) {
  CheckpointStore store(folder);
  store.begin(kStep);
  int64_t first = 0;
  for (int rank = 0; rank < static_cast<int>(counts.size()); ++rank) {
    std::vector<storage::NamedTensor> tensors;
    std::map<std::string, std::string> metadata;
    if (rank == 0)
      tensors = {{"conv.weight", at::ones({2, 2})}, {"optimizer.momentum_buffer.conv.weight", at::ones({2})}};
    for (const std::string name : {"head.weight", "optimizer.momentum_buffer.head.weight"}) {
      tensors.push_back({name_of_part(name, rank), whole(name).narrow(0, first, counts[rank]).contiguous()});
      put_rows(metadata, tensors.back().name, {first, counts[rank], kRows});
    }
    store.write_rank(kStep, rank, tensors, metadata);
    first += counts[rank];
  }
  storage::Manifest manifest;
  manifest.step = kStep;
  manifest.world = static_cast<int>(counts.size());
  manifest.identity = {{"model", "tiny"}};
  manifest.trainer = {{"step", kStep}};
  store.commit(manifest);
}

RowSplit in_proportion(std::vector<double> weights) {
  return [weights](int64_t rows) { return comm::split_by_weight(rows, weights); };
}

TEST(CheckpointReader, AnyRowsFromAnySplit) {
  for (const auto& counts : std::vector<std::vector<int64_t>>{{11}, {4, 4, 3}, {0, 11}, {5, 0, 6}, {1, 2, 3, 5}}) {
    const TemporaryFolder folder;
    write_sample(folder.path(), counts);
    const CheckpointReader reader(CheckpointStore(folder.path()), kStep);
    EXPECT_EQ(reader.names(),
              (std::vector<std::string>{"conv.weight", "head.weight", "optimizer.momentum_buffer.conv.weight",
                                        "optimizer.momentum_buffer.head.weight"}));
    EXPECT_EQ(reader.split_rows("head.weight"), kRows);
    EXPECT_EQ(reader.split_rows("conv.weight"), std::nullopt);
    EXPECT_TRUE(reader.read("conv.weight").equal(at::ones({2, 2})));
    for (int64_t first = 0; first <= kRows; ++first) {
      for (int64_t count = 0; count <= kRows - first; ++count) {
        const auto rows = reader.read_rows("head.weight", first, count);
        EXPECT_TRUE(rows.equal(whole("head.weight").narrow(0, first, count))) << first << " " << count;
      }
    }
    EXPECT_EQ(text_of([&] { reader.read_rows("head.weight", 9, 3); }),
              "tensor 'head.weight' has 11 rows, wanted rows 9..12");
    EXPECT_EQ(text_of([&] { reader.read_rows("conv.weight", 0, 1); }),
              "tensor 'conv.weight' is not split in this checkpoint");
  }
}

TEST(CheckpointReader, RowsThatLieInNoFileAreNamed) {
  const TemporaryFolder folder;
  write_sample(folder.path(), {4, 3});
  EXPECT_EQ(text_of([&] { CheckpointReader(CheckpointStore(folder.path()), kStep); }),
            "tensor 'head.weight' has 7 rows in all files, wanted 11");
}

TEST(Reshard, ThereAndBackIsTheSameBitForBit) {
  const TemporaryFolder folder;
  write_sample(folder.path() / "a", {4, 4, 3});
  CheckpointStore second(folder.path() / "b"), third(folder.path() / "c");
  reshard(CheckpointReader(CheckpointStore(folder.path() / "a"), kStep), second, 2, in_proportion({1, 3}));
  EXPECT_EQ(second.verify(kStep), std::nullopt);
  EXPECT_EQ(second.manifest(kStep).world, 2);
  EXPECT_EQ(second.manifest(kStep).identity, (storage::Identity{{"model", "tiny"}}));
  EXPECT_EQ(second.open_rank(kStep, 0).shape("head.weight.rank_0000"), (std::vector<int64_t>{3, 3}));
  const CheckpointReader halfway(second, kStep);
  EXPECT_TRUE(halfway.read("optimizer.momentum_buffer.head.weight").equal(whole("optimizer")));
  reshard(halfway, third, 3, in_proportion({1, 1, 1}));
  const CheckpointStore first(folder.path() / "a");
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(third.open_rank(kStep, rank).header_checksum(), first.open_rank(kStep, rank).header_checksum());
  }
}

TEST(Reshard, OneFileForServingHasTheWeightsWhole) {
  const TemporaryFolder folder;
  write_sample(folder.path() / "a", {4, 4, 3});
  const auto path = folder.path() / "model.safetensors";
  merge_weights(CheckpointReader(CheckpointStore(folder.path() / "a"), kStep), path);
  const storage::SafetensorsFile file(path);
  EXPECT_EQ(file.names().size(), 2u);
  EXPECT_TRUE(file.read("head.weight").equal(whole("head.weight")));
  EXPECT_TRUE(file.read("conv.weight").equal(at::ones({2, 2})));
  EXPECT_EQ(file.metadata().at("tandem.step"), "7");
}

TEST(Reshard, ASplitThatDoesNotAddUpIsNamed) {
  const TemporaryFolder folder;
  write_sample(folder.path() / "a", {11});
  CheckpointStore to(folder.path() / "b");
  EXPECT_EQ(text_of([&] {
              reshard(CheckpointReader(CheckpointStore(folder.path() / "a"), kStep), to, 2, [](int64_t) {
                return std::vector<int64_t>{4, 4};
              });
            }),
            "reshard: the split of 11 rows is [4, 4], wanted 2 counts that add up to them");
}

}  // namespace
}  // namespace tandem::train
