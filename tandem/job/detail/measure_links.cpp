#include "tandem/job/detail/measure_links.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>

#include "tandem/base/seconds.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/point_to_point.h"
#include "tandem/rendezvous/environment.h"

namespace tandem::job {
namespace {

constexpr int kTag = (1 << 20) - 1;
constexpr int64_t kFewBytes = 64, kManyBytes = 4 << 20;

/// The best of some round trips of so many bytes between rank 0 and another, halved; 0 on the others.
double trip_seconds(int64_t bytes, int other, comm::ProcessGroup& group) {
  constexpr int kTrips = 5;
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTrips; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const auto send_to = [&](int to) { comm::send_message({at::zeros({bytes}, at::kByte)}, to, group, kTag).wait(); };
    if (group.rank() == 0) {
      send_to(other);
      comm::receive_message(other, group, kTag);
      best = std::min(best, seconds_since(start) / 2);
    } else if (group.rank() == other) {
      comm::receive_message(0, group, kTag);
      send_to(0);
    }
  }
  return group.rank() == 0 ? best : 0;
}

Link link_to(int other, comm::ProcessGroup& group, double hidden) {
  const double latency = trip_seconds(kFewBytes, other, group), large = trip_seconds(kManyBytes, other, group);
  return {latency, static_cast<double>(kManyBytes) / std::max(1e-9, large - latency), hidden};
}

/// Bytes a second that each rank of one host sends and takes in a sum of all.
double sum_rate(comm::ProcessGroup& group) {
  constexpr int kRuns = 5;
  auto x = at::zeros({kManyBytes}, at::kByte).view(at::kFloat);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRuns; ++i) {
    comm::barrier(group);
    const auto start = std::chrono::steady_clock::now();
    comm::all_reduce_(x, group);
    best = std::min(best, seconds_since(start));
  }
  return 2.0 * kManyBytes * (group.size() - 1) / group.size() / best;
}

/// Ranks of a host, of which the launcher has started as many on each; nullopt: all are on one.
std::optional<int> ranks_of_host(int ranks) {
  const auto launch = rendezvous::detect_launch();
  if (!launch || launch->size != ranks || launch->local_size <= 0 || launch->local_size == ranks) return std::nullopt;
  return launch->local_size;
}

}  // namespace

Links measure_links(comm::ProcessGroup& group) {
  Links links;
  if (group.size() == 1) return links;
  if (const auto own = ranks_of_host(group.size())) {
    links.ranks_of_host = *own;
    if (*own > 1) links.inside = link_to(1, group, links.inside.hidden);
    links.between = link_to(*own, group, links.between.hidden);
  } else {
    links.inside.bytes_per_second = sum_rate(group);
    links.inside.latency = trip_seconds(kFewBytes, 1, group);
  }
  comm::barrier(group);
  return links;
}

}  // namespace tandem::job
