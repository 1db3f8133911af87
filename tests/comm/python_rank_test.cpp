#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/comm/collectives.h"
#include "tandem/comm/point_to_point.h"
#include "tandem/comm/world.h"
#include "tests/support/ports.h"
#include "tests/support/python.h"
#include "tests/support/running.h"

namespace tandem::comm {
namespace {

Tensor rows(int rank, int64_t count) { return at::arange(count * 3, at::kDouble).reshape({count, 3}) + 100.0 * rank; }

void call_all(ProcessGroup& group) {
  const auto x = rows(0, 5), both = x + rows(1, 5);
  const std::vector<int64_t> parts = {3, 2};
  EXPECT_TRUE(broadcast(x, 0, group).equal(x));
  EXPECT_TRUE(reduce_sum(x, 0, group).equal(both));
  EXPECT_TRUE(all_reduce(x, group).equal(both));
  EXPECT_TRUE(all_reduce(x, group, Reduce::max).equal(rows(1, 5)));
  const auto joined = at::cat({rows(0, 3), rows(1, 2)});
  EXPECT_TRUE(gather(rows(0, 3), 0, group, 0, parts).equal(joined));
  EXPECT_TRUE(scatter(x, 0, group, 0, parts).equal(x.slice(0, 0, 3)));
  EXPECT_TRUE(all_gather(rows(0, 3), group, 0, parts).equal(joined));
  EXPECT_TRUE(reduce_scatter(x, group).equal(both.slice(0, 0, 3)));
  const std::vector<int64_t> sent = {3, 2}, received = {3, 1};
  EXPECT_TRUE(all_to_all(x, group, 0, sent, received).equal(at::cat({x.slice(0, 0, 3), rows(1, 5).slice(0, 0, 1)})));
  send(x.t(), 1, group, 3);
  EXPECT_TRUE(recv(1, group, 3).equal(rows(1, 2)));
  barrier(group);
}

/// Rank 0 is here, rank 1 is tests/oracle/gloo_rank.py on Python's torch.distributed.
TEST(PythonRank, TheTenOperatorsAgree) {
  rendezvous::Launch launch;
  launch.launcher = "environment";
  launch.size = 2;
  launch.address = "127.0.0.1";
  launch.port = test::free_port();
  test::Running peer(
      {test::python(), (test::sources() / "tests/oracle/gloo_rank.py").string(), std::to_string(launch.port)});
  WorldOptions options;
  options.init_timeout = options.timeout = std::chrono::seconds(60);
  const auto group = join_world(launch, options);
  try {
    call_all(*group);
  } catch (const std::exception& error) {
    FAIL() << error.what() << peer.wait().err;
  }
  const auto ended = peer.wait();
  EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
}

}  // namespace
}  // namespace tandem::comm
