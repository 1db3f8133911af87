#include "tandem/classifier/mesh_head.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tandem/base/rng.h"
#include "tandem/classifier/class_sharded_head.h"
#include "tandem/comm/world.h"
#include "tests/support/text_of.h"

namespace tandem::classifier {
namespace {

using parallel::Axes;
using parallel::Axis;
using parallel::MeshSizes;

constexpr int64_t kClasses = 11, kDim = 4, kRows = 7;

Tensor features_of_all() {
  const auto features = at::empty({kRows, kDim}, at::kDouble);
  fill_normal_(features, 1.0, 3, 1);
  return features;
}

Tensor targets_of_all() { return at::tensor(std::vector<int64_t>{0, 10, 3, -1, 7, 3, 5}, at::kLong); }

HeadOptions options_of(bool naive) {
  return {.classes = kClasses, .dim = kDim, .scoring = cosface(24, 0.2), .naive = naive, .dtype = at::kDouble};
}

struct Found {
  Tensor loss, of_features, of_weight;
  Ranking best;
};

/// For rows begin .. begin + sizes[rank] - 1, where `rank` is that among the ranks that share a batch.
Found found_by(Head& head, int rank, const std::vector<int64_t>& sizes) {
  const int64_t begin = std::accumulate(sizes.begin(), sizes.begin() + rank, int64_t{0});
  auto features = features_of_all().narrow(0, begin, sizes[rank]).clone().requires_grad_();
  const auto loss = head.loss(features * 1, targets_of_all().narrow(0, begin, sizes[rank]), sizes);
  loss.backward();
  return {loss.detach(), features.grad(), head.parameter().tensor.grad(), head.top_k(features, 5, sizes)};
}

Found found_by_one_device() {
  const auto group = comm::make_single_group();
  ClassShardedHead head(options_of(false), *group);
  return found_by(head, 0, {kRows});
}

struct Case {
  MeshSizes sizes;
  Axes over;
  std::vector<int64_t> rows;  // of the ranks that share a batch
};

const std::vector<Case> kCases = {
    {{.tensor = 2}, Axes::all(), {7}},
    {{.tensor = 3}, {Axis::tensor}, {7}},
    {{.tensor = 2}, {Axis::data}, {7}},
    {{.data = 2, .tensor = 2}, Axes::all(), {4, 3}},
    {{.data = 2, .tensor = 2}, {Axis::data}, {4, 3}},
    {{.data = 2, .tensor = 2}, Axes::all(), {7, 0}},
    {{.shard = 2, .tensor = 2}, {Axis::shard, Axis::tensor}, {4, 3}},
    {{.data = 3, .pipeline = 2}, Axes::all(), {3, 2, 2}},
    {{.data = 2, .tensor = 2, .pipeline = 2}, {Axis::data, Axis::tensor}, {4, 3}},
    {{.data = 2, .tensor = 2, .pipeline = 2}, Axes::all(), {4, 3}},
};

TEST(MeshHead, EqualsOneDevice) {
  const auto expected = found_by_one_device();
  for (size_t i = 0; i < kCases.size(); ++i) {
    for (const bool naive : {false, true}) {
      const auto& [sizes, over, rows] = kCases[i];
      comm::run_ranks(static_cast<int>(sizes.ranks()), [&](comm::ProcessGroup& world) {
        SCOPED_TRACE("case " + std::to_string(i));
        parallel::Mesh mesh(sizes, world);
        MeshHead head(std::make_unique<ClassShardedHead>(options_of(naive), mesh.group(over)), over, mesh);
        const int rank = mesh.batch().rank();
        const auto found = found_by(head, rank, rows);
        const int64_t begin = std::accumulate(rows.begin(), rows.begin() + rank, int64_t{0});
        const auto own = [&](const Tensor& whole) { return whole.narrow(0, begin, rows[rank]); };
        EXPECT_NEAR(found.loss.item<double>(), expected.loss.item<double>(), 1e-12);
        EXPECT_TRUE(at::allclose(found.of_features, own(expected.of_features), 0, 1e-13));
        EXPECT_TRUE(found.best.classes.equal(own(expected.best.classes)));
        EXPECT_TRUE(at::allclose(found.best.scores, own(expected.best.scores), 1e-12, 1e-14));
        const auto split = head.parameter().placement.splits.at(0);
        EXPECT_TRUE(
            at::allclose(found.of_weight, expected.of_weight.narrow(0, split.first, split.count), 1e-12, 1e-12));
      });
    }
  }
}

/// Each class counts once, and strategies of data parallelism leave the weight to the head.
TEST(MeshHead, PlacesItsWeight) {
  for (const auto& [sizes, over, rows] : kCases) {
    std::vector<int64_t> counted(static_cast<size_t>(sizes.ranks()));
    comm::run_ranks(static_cast<int>(sizes.ranks()), [&](comm::ProcessGroup& world) {
      parallel::Mesh mesh(sizes, world);
      MeshHead head(std::make_unique<ClassShardedHead>(options_of(false), mesh.group(over)), over, mesh);
      const auto parameter = head.parameter("w");
      EXPECT_FALSE(parameter.placement.is_replicated_along(parallel::kBatchAxes));
      EXPECT_EQ(parameter.placement.is_replicated_along({Axis::tensor}), sizes.tensor > 1 && !over.has(Axis::tensor));
      if (parameter.placement.counts_on(world.rank())) counted[world.rank()] = parameter.tensor.size(0);
    });
    EXPECT_EQ(std::accumulate(counted.begin(), counted.end(), int64_t{0}), kClasses);
  }
}

TEST(MeshHead, RefusesToLeaveOutRanksThatShareABatch) {
  const auto text = test::text_of<c10::ValueError>([] {
    comm::run_ranks(2, [&](comm::ProcessGroup& world) {
      parallel::Mesh mesh({.data = 2}, world);
      const Axes over = {Axis::tensor};
      MeshHead head(std::make_unique<ClassShardedHead>(options_of(false), mesh.group(over)), over, mesh);
    });
  });
  EXPECT_NE(text.find("head: its classes are split over 1 of the 2 ranks that share a batch, wanted all of them"),
            text.npos)
      << text;
}

}  // namespace
}  // namespace tandem::classifier
