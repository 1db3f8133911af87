#include "tandem/comm/collectives.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tests/comm/backends.h"
#include "tests/support/text_of.h"

namespace tandem::comm {
namespace {

using test::text_of;

class Collectives : public test::OnBackends {};
INSTANTIATE_TEST_SUITE_P(Backends, Collectives, test::kTransports, test::backend_name);

/// What rank `rank` holds: n rows of three, each number unlike all others.
Tensor rows_of(int rank, int64_t n) { return at::arange(n * 3, at::kDouble).reshape({n, 3}) + 100.0 * rank; }

TEST_P(Collectives, AllReduceOfEveryKind) {
  for (const int n : {1, 2, 3, 5}) {
    on_ranks(n, [&](ProcessGroup& group) {
      const auto x = rows_of(group.rank(), 2);
      EXPECT_TRUE(all_reduce(x, group).equal(rows_of(0, 2) * n + 100.0 * n * (n - 1) / 2));
      EXPECT_TRUE(at::allclose(all_reduce(x, group, Reduce::mean), rows_of(0, 2) + 50.0 * (n - 1)));
      EXPECT_TRUE(all_reduce(x, group, Reduce::max).equal(rows_of(n - 1, 2)));
      EXPECT_TRUE(all_reduce(x, group, Reduce::min).equal(rows_of(0, 2)));
    });
  }
}

TEST_P(Collectives, EqualPartsAreGatheredAndReducedInPlace) {
  for (const int n : {1, 2, 3, 4}) {
    on_ranks(n, [&](ProcessGroup& group) {
      const int64_t first = 2 * group.rank();
      std::vector<Tensor> parts;
      for (int rank = 0; rank < n; ++rank) parts.push_back(rows_of(rank, 2));
      const auto gathered = at::full({2 * n, 3}, -1.0, at::kDouble);
      gathered.narrow(0, first, 2).copy_(rows_of(group.rank(), 2));
      all_gather_(gathered, group);
      EXPECT_TRUE(gathered.equal(at::cat(parts)));
      auto expected = rows_of(group.rank(), 2 * n);
      const auto reduced = expected.clone();
      reduce_scatter_(reduced, group);
      expected.narrow(0, first, 2).copy_((rows_of(0, 2 * n) * n + 100.0 * n * (n - 1) / 2).narrow(0, first, 2));
      EXPECT_TRUE(reduced.equal(expected));
      if (n == 1) return;
      const int64_t bytes = (n - 1) * 2 * 3 * 8;
      EXPECT_EQ(group.meter().counts().at("all_gather").bytes, bytes);
      EXPECT_EQ(group.meter().counts().at("reduce_scatter").bytes, bytes);
    });
  }
  run_ranks(2, [](ProcessGroup& group) {
    EXPECT_EQ(text_of<c10::ValueError>([&] {
                all_gather_(at::zeros({3, 2}), group);
              }),
              "all_gather: tensor has sizes [3, 2], wanted an equal part of each of the 2 ranks along dim 0");
    EXPECT_EQ(text_of<c10::ValueError>([&] {
                reduce_scatter_(at::zeros({2, 4}).t(), group);
              }),
              "reduce_scatter: tensor is not contiguous");
  });
}

/// Between processes, parts above 1 MiB travel in another way than smaller ones.
TEST_P(Collectives, LargePartsAreGathered) {
  constexpr int64_t kRow = 3 * 8, kLarge = (1 << 20) / kRow + 1;
  for (const auto& sizes : std::vector<std::vector<int64_t>>{
           {kLarge, kLarge}, {kLarge, 0, 7}, {1, kLarge + 5, kLarge - 2}, {0, 0, kLarge, 2}}) {
    on_ranks(static_cast<int>(sizes.size()), [&](ProcessGroup& group) {
      std::vector<Tensor> parts, others;
      for (size_t rank = 0; rank < sizes.size(); ++rank) {
        parts.push_back(rows_of(static_cast<int>(rank), sizes[rank]));
        others.push_back(parts.back() * 2 + 1);
      }
      const auto own = parts[group.rank()], whole = at::cat(parts);
      EXPECT_TRUE(all_gather(own, group).equal(whole));
      auto first = all_gather_async(own, group, 0, sizes), second = all_gather_async(own * 2 + 1, group, 0, sizes);
      EXPECT_TRUE(second.wait().equal(at::cat(others)));
      EXPECT_TRUE(first.wait().equal(whole));
      group.meter().reset();
      all_gather(own, group, 0, sizes);
      EXPECT_EQ(group.meter().counts().at("all_gather").bytes, (group.size() - 1) * own.size(0) * kRow);
    });
  }
  for (const int n : {2, 3}) {
    on_ranks(n, [&](ProcessGroup& group) {
      std::vector<Tensor> parts;
      for (int rank = 0; rank < n; ++rank) parts.push_back(rows_of(rank, kLarge));
      const auto whole = at::cat(parts), gathered = at::zeros_like(whole);
      gathered.narrow(0, group.rank() * kLarge, kLarge).copy_(parts[group.rank()]);
      all_gather_(gathered, group);
      EXPECT_TRUE(gathered.equal(whole));
    });
  }
}

TEST_P(Collectives, AllGatherTakesUnevenParts) {
  for (const int n : {1, 2, 3, 4}) {
    on_ranks(n, [&](ProcessGroup& group) {
      const auto sizes = split_sizes(5, n);
      std::vector<Tensor> parts;
      for (int rank = 0; rank < n; ++rank) parts.push_back(rows_of(rank, sizes[rank]));
      const auto whole = at::cat(parts);
      EXPECT_TRUE(all_gather(parts[group.rank()], group).equal(whole));
      EXPECT_TRUE(all_gather(parts[group.rank()], group, 0, sizes).equal(whole));
      EXPECT_TRUE(all_gather(parts[group.rank()].t(), group, 1).equal(whole.t()));
    });
  }
}

TEST_P(Collectives, ReduceScatterTakesUnevenParts) {
  for (const int n : {1, 2, 3, 4}) {
    on_ranks(n, [&](ProcessGroup& group) {
      const auto sum = rows_of(0, 7) * n + 100.0 * n * (n - 1) / 2;
      const auto [begin, end] = split_range(7, n, group.rank());
      const auto x = rows_of(group.rank(), 7);
      EXPECT_TRUE(reduce_scatter(x, group).equal(sum.slice(0, begin, end)));
      EXPECT_TRUE(reduce_scatter(x.t(), group, 1).equal(sum.t().slice(1, begin, end)));
    });
  }
}

TEST_P(Collectives, EveryRootBroadcastsGathersAndScatters) {
  for (const int n : {1, 2, 3}) {
    on_ranks(n, [&](ProcessGroup& group) {
      const auto sizes = split_sizes(5, n);
      const auto [begin, end] = split_range(5, n, group.rank());
      for (int root = 0; root < n; ++root) {
        EXPECT_TRUE(broadcast(rows_of(group.rank(), 2), root, group).equal(rows_of(root, 2)));
        const auto gathered = gather(rows_of(0, 5).slice(0, begin, end), root, group, 0, sizes);
        EXPECT_TRUE(gathered.equal(rows_of(0, group.rank() == root ? 5 : 0)));
        EXPECT_TRUE(
            scatter(rows_of(group.rank(), 5), root, group, 0, sizes).equal(rows_of(root, 5).slice(0, begin, end)));
      }
    });
  }
}

TEST_P(Collectives, WireBytesFollowTheFormulas) {
  on_ranks(3, [&](ProcessGroup& group) {
    const int64_t row = 3 * 8, mine = split_sizes(7, 3)[group.rank()];
    const auto check = [&](const char* name, int64_t bytes, const std::function<void()>& call) {
      group.meter().reset();
      call();
      EXPECT_EQ(group.meter().counts().at(name).calls, 1) << name;
      EXPECT_EQ(group.meter().counts().at(name).bytes, bytes) << name << " rank " << group.rank();
      EXPECT_EQ(group.meter().counts().size(), 1u) << name;
    };
    const auto x = rows_of(group.rank(), 7);
    const auto part = rows_of(group.rank(), mine);
    const auto sizes = split_sizes(7, 3);
    check("all_reduce", 7 * row + 7 * 8, [&] { all_reduce(x, group); });  // 21 numbers: 7 a rank: S - own + 2 own
    check("all_gather", 2 * mine * row, [&] { all_gather(part, group, 0, sizes); });
    check("reduce_scatter", (7 - mine) * row, [&] { reduce_scatter(x, group, 0, sizes); });
    // Along a chain: 1 to 2 to 0, and back to the root for a sum.
    check("broadcast", group.rank() == 0 ? 0 : 7 * row, [&] { broadcast(x, 1, group); });
    check("reduce_sum", group.rank() == 1 ? 0 : 7 * row, [&] { reduce_sum(x, 1, group); });
    check("gather", group.rank() == 1 ? 0 : mine * row, [&] { gather(part, 1, group, 0, sizes); });
    check("scatter", group.rank() == 1 ? (7 - mine) * row : 0, [&] { scatter(x, 1, group, 0, sizes); });
    check("all_to_all", (7 - mine) * row, [&] { all_to_all(x, group, 0, sizes, std::vector<int64_t>(3, mine)); });
    check("barrier", 0, [&] { barrier(group); });
  });
}

TEST_P(Collectives, AGroupOfOneSendsNothing) {
  on_ranks(1, [&](ProcessGroup& group) {
    all_reduce(rows_of(0, 2), group);
    all_gather(rows_of(0, 2), group);
    barrier(group);
    EXPECT_TRUE(group.meter().counts().empty());
  });
}

TEST_P(Collectives, SplitGroupsTalkAmongThemselves) {
  on_ranks(5, [&](ProcessGroup& group) {
    const auto part = group.split(group.rank() % 2);
    EXPECT_EQ(part->size(), group.rank() % 2 == 0 ? 3 : 2);
    EXPECT_EQ(part->rank(), group.rank() / 2);
    const auto sum = all_reduce(at::full({1}, group.rank(), at::kLong), *part);
    EXPECT_EQ(sum.item<int64_t>(), group.rank() % 2 == 0 ? 6 : 4);
  });
}

TEST_P(Collectives, HalfTypesSumInFloat) {
  on_ranks(3, [&](ProcessGroup& group) {
    const auto x = at::full({100}, 1.0, at::kBFloat16);
    EXPECT_TRUE(all_reduce(x, group).equal(at::full({100}, 3.0, at::kBFloat16)));
  });
}

TEST(Errors, WrongArgumentsNameWhatIsWanted) {
  run_ranks(2, [](ProcessGroup& group) {
    const std::vector<int64_t> sizes = {1, 1};
    EXPECT_EQ(text_of([&] {
                all_gather(at::zeros({3, 2}), group, 0, sizes);
              }),
              "all_gather: size of dim 0 is 3, wanted 1 as told for rank " + std::to_string(group.rank()));
    EXPECT_EQ(text_of([&] { reduce_scatter(at::zeros({3}), group, 0, sizes); }),
              "reduce_scatter: size of dim 0 is 3, wanted the sum of sizes, 2");
    EXPECT_EQ(text_of([&] { broadcast(at::zeros({3}), 2, group); }), "broadcast: root is 2, wanted 0..1");
    EXPECT_EQ(text_of([&] { all_gather(at::zeros({}), group); }), "all_gather: tensor has no dims, wanted 1 or more");
  });
}

}  // namespace
}  // namespace tandem::comm
