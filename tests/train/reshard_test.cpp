#include "tandem/train/reshard.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/comm/split.h"
#include "tandem/train/detail/stored_part.h"
#include "tandem/train/model_card.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::train {
namespace {

using parallel::Placement;
using test::TemporaryFolder;
using test::text_of;

constexpr int64_t kRows = 11, kStep = 7;
const std::string kCard = "{\"classes\": 2}\n";

Tensor names() { return at::tensor({91, 34, 97, 34, 93}, at::kByte); }

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
      tensors = {{"conv.weight", at::ones({2, 2})},
                 {"optimizer.momentum_buffer.conv.weight", at::ones({2})},
                 {kClassNames, names()}};
    for (const std::string name : {"head.weight", "optimizer.momentum_buffer.head.weight"}) {
      tensors.push_back({detail::name_of_part(name, rank), whole(name).narrow(0, first, counts[rank]).contiguous()});
      detail::put_splits(metadata, tensors.back().name, {{0, first, counts[rank], kRows}});
    }
    store.write_rank(kStep, rank, tensors, metadata);
    first += counts[rank];
  }
  storage::Manifest manifest;
  manifest.step = kStep;
  manifest.world = static_cast<int>(counts.size());
  manifest.identity = {{"model", "tiny"}};
  manifest.trainer = {{"step", kStep}};
  store.commit(manifest, kCard);
}

Layout in_proportion(const std::vector<double>& weights) {
  return along_same_dim(static_cast<int>(weights.size()),
                        [weights](int64_t rows) { return comm::split_by_weight(rows, weights); });
}

TEST(CheckpointReader, AnyRowsFromAnySplit) {
  for (const auto& counts : std::vector<std::vector<int64_t>>{{11}, {4, 4, 3}, {0, 11}, {5, 0, 6}, {1, 2, 3, 5}}) {
    const TemporaryFolder folder;
    write_sample(folder.path(), counts);
    const CheckpointReader reader(CheckpointStore(folder.path()), kStep);
    EXPECT_EQ(reader.names(),
              (std::vector<std::string>{"conv.weight", "head.weight", "optimizer.momentum_buffer.conv.weight",
                                        "optimizer.momentum_buffer.head.weight", kClassNames}));
    EXPECT_EQ(reader.card(), kCard);
    EXPECT_EQ(reader.tensor("head.weight").sizes, (std::vector<int64_t>{kRows, 3}));
    EXPECT_EQ(reader.tensor("head.weight").split_dims, std::set<int64_t>{0});
    EXPECT_EQ(reader.tensor("conv.weight").split_dims, std::set<int64_t>{});
    EXPECT_TRUE(reader.read("conv.weight").equal(at::ones({2, 2})));
    for (int64_t first = 0; first <= kRows; ++first) {
      for (int64_t count = 0; count <= kRows - first; ++count) {
        const auto rows = reader.read("head.weight", {{first, 0}, {count, 3}});
        EXPECT_TRUE(rows.equal(whole("head.weight").narrow(0, first, count))) << first << " " << count;
      }
    }
    EXPECT_EQ(text_of([&] {
                reader.read("head.weight", {{9, 0}, {3, 3}});
              }),
              "tensor 'head.weight' has sizes [11, 3], wanted its elements [9..11, 0..2]");
    EXPECT_EQ(text_of([&] { reader.read("neck.weight"); }), "tensor 'neck.weight' is missing in this checkpoint");
  }
}

TEST(CheckpointReader, RowsThatLieInNoFileAreNamed) {
  const TemporaryFolder folder;
  write_sample(folder.path(), {4, 3});
  EXPECT_EQ(text_of([&] { CheckpointReader(CheckpointStore(folder.path()), kStep); }),
            "tensor 'head.weight' has 21 elements in all parts, wanted 33");
}

TEST(CheckpointReader, ElementsInTwoFilesAreNamed) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  store.begin(kStep);
  for (const int rank : {0, 1, 2}) {
    const auto name = detail::name_of_part("w", rank);
    std::map<std::string, std::string> metadata;
    detail::put_splits(metadata, name, {{1, 2 * rank, 3, 7}});
    store.write_rank(kStep, rank, {{name, at::ones({2, 3})}}, metadata);
  }
  store.commit({.step = kStep, .world = 3, .identity = {}, .trainer = {}, .files = {}});
  EXPECT_EQ(text_of<DataError>([&] { CheckpointReader(store, kStep); }),
            "tensor 'w' has [0..1, 2..2] in rank_0000.safetensors and in rank_0001.safetensors, wanted it in one");
}

TEST(CheckpointReader, PartsThatDifferAreNamed) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  store.begin(kStep);
  for (const int rank : {0, 1}) {
    const auto name = detail::name_of_part("w", rank);
    std::map<std::string, std::string> metadata;
    detail::put_splits(metadata, name, {{0, 2 * rank, 2, 4}});
    store.write_rank(kStep, rank, {{name, at::ones({2, 3 + rank})}}, metadata);
  }
  store.commit({.step = kStep, .world = 2, .identity = {}, .trainer = {}, .files = {}});
  EXPECT_EQ(text_of<DataError>([&] { CheckpointReader(store, kStep); }),
            "tensor 'w' is Float [4, 4] in rank_0001.safetensors, wanted Float [4, 3] as in rank_0000.safetensors");
}

/// A note on a part, with a name that says nothing of its rank.
TEST(CheckpointReader, APartHasItsRanksName) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  store.begin(kStep);
  store.write_rank(kStep, 0, {{"w", at::ones({2, 3})}}, {{"tandem.rows.w", "0,2,2"}});
  store.commit({.step = kStep, .world = 1, .identity = {}, .trainer = {}, .files = {}});
  EXPECT_EQ(text_of<DataError>([&] { CheckpointReader(store, kStep); }),
            "tensor 'w' of rank_0000.safetensors is a part and has no name that ends with .rank_0000");
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
  EXPECT_TRUE(halfway.read(kClassNames).equal(names()));
  EXPECT_EQ(halfway.card(), kCard);
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
  EXPECT_EQ(file.names().size(), 3u);
  EXPECT_TRUE(file.read(kClassNames).equal(names()));
  EXPECT_EQ(file.metadata().at(kCardKey), kCard);
  EXPECT_TRUE(file.read("head.weight").equal(whole("head.weight")));
  EXPECT_TRUE(file.read("conv.weight").equal(at::ones({2, 2})));
  EXPECT_EQ(file.metadata().at("tandem.step"), "7");
}

TEST(Reshard, ASplitThatDoesNotAddUpIsNamed) {
  const TemporaryFolder folder;
  write_sample(folder.path() / "a", {11});
  CheckpointStore to(folder.path() / "b");
  EXPECT_EQ(text_of([&] {
              const auto too_few = along_same_dim(2, [](int64_t) { return std::vector<int64_t>{4, 4}; });
              reshard(CheckpointReader(CheckpointStore(folder.path() / "a"), kStep), to, 2, too_few);
            }),
            "reshard: the split of 11 rows is [4, 4], wanted 2 counts that add up to them");
}

TEST(Reshard, ALayoutThatLeavesElementsOutIsNamed) {
  const TemporaryFolder folder;
  write_sample(folder.path() / "a", {4, 7});
  const CheckpointReader from(CheckpointStore(folder.path() / "a"), kStep);
  const auto told_of = [&](const Layout& layout) {
    CheckpointStore to(folder.path() / "b");
    const auto text = text_of<c10::ValueError>([&] { reshard(from, to, 2, layout); });
    EXPECT_EQ(to.list(), std::vector<int64_t>());
    return text;
  };
  const auto all = [](std::vector<Placement> head) {
    return [head](const std::string&, const StoredTensor& tensor, int) {
      return tensor.split_dims.empty() ? std::vector<Placement>{{}} : head;
    };
  };
  const std::string begin = "reshard: tensor 'head.weight'";
  EXPECT_EQ(told_of(all({})), begin + " has 0 elements in all parts, wanted 33");
  EXPECT_EQ(told_of(all({{.splits = {{0, 0, 5, 11}}}})),
            begin + " has [0..4, 0..2] in rank 0 and in rank 1, wanted it in one");
  EXPECT_EQ(told_of(all({{.splits = {{2, 0, 1, 1}}}})),
            begin + ": shape is [11, 3], split along dim 2, wanted its dims in ascending order");
}

}  // namespace
}  // namespace tandem::train
