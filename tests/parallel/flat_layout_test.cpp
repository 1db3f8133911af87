#include "tandem/parallel/detail/flat_layout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/text_of.h"

namespace tandem::parallel::detail {
namespace {

/// 5 + 24 + 1 + 0 numbers; the second has its channels last.
std::vector<Tensor> samples() {
  return {at::arange(5), at::arange(24).reshape({2, 3, 2, 2}).to(at::kLong).contiguous(at::MemoryFormat::ChannelsLast),
          at::full({}, 7, at::kLong), at::empty({0, 2}, at::kLong)};
}

TEST(FlatLayout, PadsToEqualShards) {
  for (const int shards : {1, 2, 3, 4, 7}) {
    const FlatLayout layout(samples(), shards);
    EXPECT_EQ(layout.shard_size(), (30 + shards - 1) / shards);
    EXPECT_EQ(layout.size(), layout.shard_size() * shards);
  }
  EXPECT_EQ(FlatLayout({}, 3).size(), 0);
}

TEST(FlatLayout, TensorsLieInMemoryOrderWithTheirStrides) {
  const auto tensors = samples();
  const FlatLayout layout(tensors, 4);
  const auto flat = at::zeros({layout.size()}, layout.options());
  for (size_t i = 0; i < tensors.size(); ++i) {
    layout.whole(flat, i).copy_(tensors[i]);
    EXPECT_EQ(layout.whole(flat, i).strides(), tensors[i].strides());
  }
  EXPECT_TRUE(flat.narrow(0, 0, 5).equal(tensors[0]));
  EXPECT_TRUE(flat.narrow(0, 5, 24).equal(at::as_strided(tensors[1], {24}, {1})));
  EXPECT_EQ(flat[29].item<int64_t>(), 7);
  EXPECT_EQ(layout.padding(flat).numel(), 2);
  EXPECT_EQ(layout.padding(flat).data_ptr(), flat.narrow(0, 30, 2).data_ptr());
}

/// Each element is in one box of one shard, where its number lies.
TEST(FlatLayout, TheBoxesOfAllShardsAreTheTensors) {
  const auto tensors = samples();
  for (const int shards : {1, 2, 3, 4, 5, 30, 33}) {
    const FlatLayout layout(tensors, shards);
    const auto flat = at::zeros({layout.size()}, layout.options());
    for (size_t i = 0; i < tensors.size(); ++i) layout.whole(flat, i).copy_(tensors[i]);
    for (size_t i = 0; i < tensors.size(); ++i) {
      std::vector<Box> boxes;
      const auto [first, last] = layout.shards_of(i);
      for (int rank = 0; rank < shards; ++rank) {
        const auto shard = flat.narrow(0, rank * layout.shard_size(), layout.shard_size());
        const auto parts = layout.parts(i, rank);
        EXPECT_EQ(parts.empty(), rank < first || rank > last) << shards << ' ' << i << ' ' << rank;
        for (const auto& part : parts) {
          const auto held = layout.part(shard, i, part);
          EXPECT_TRUE(held.is_non_overlapping_and_dense());
          EXPECT_TRUE(held.equal(view_of(tensors[i], whole_box(tensors[i].sizes()), part.box))) << to_string(part.box);
          boxes.push_back(part.box);
        }
      }
      const std::vector<std::string> places(boxes.size(), "a shard");
      EXPECT_EQ(tiling_fault(tensors[i].sizes(), boxes, places), std::nullopt) << shards << ' ' << i;
    }
  }
}

TEST(FlatLayout, RefusesWhatDoesNotFit) {
  EXPECT_EQ(test::text_of<c10::ValueError>([] { FlatLayout({at::zeros({2})}, 0); }),
            "flat: shards is 0, wanted 1 or more");
  EXPECT_EQ(test::text_of<c10::ValueError>([] {
              FlatLayout({at::zeros({4, 2}).select(1, 0)}, 2);
            }),
            "flat: tensor 0 has sizes [4] and strides [2], wanted numbers that lie next to each other");
  EXPECT_EQ(test::text_of<c10::ValueError>([] {
              FlatLayout({at::zeros({2}), at::zeros({2}, at::kDouble)}, 2);
            }),
            "flat: tensor 1 is double on cpu, wanted float on cpu as the first");
}

}  // namespace
}  // namespace tandem::parallel::detail
