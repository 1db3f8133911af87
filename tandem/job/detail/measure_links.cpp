#include "tandem/job/detail/measure_links.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "tandem/base/seconds.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/point_to_point.h"
#include "tandem/rendezvous/environment.h"

namespace tandem::job {
namespace {

constexpr int kTag = (1 << 20) - 1;

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

Link link_to(int other, comm::ProcessGroup& group) {
  constexpr int64_t kFew = 64, kMany = 1 << 20;
  const double latency = trip_seconds(kFew, other, group), large = trip_seconds(kMany, other, group);
  return {latency, static_cast<double>(kMany) / std::max(1e-9, large - latency)};
}

/// Ranks of a host, of which the launcher has started as many on each.
int ranks_of_host(int ranks) {
  const auto launch = rendezvous::detect_launch();
  return launch && launch->size == ranks && launch->local_size > 0 ? launch->local_size : ranks;
}

}  // namespace

Links measure_links(comm::ProcessGroup& group) {
  Links links;
  if (group.size() == 1) return links;
  links.ranks_of_host = ranks_of_host(group.size());
  if (links.ranks_of_host > 1) links.inside = link_to(1, group);
  if (links.ranks_of_host < group.size()) links.between = link_to(links.ranks_of_host, group);
  comm::barrier(group);
  return links;
}

}  // namespace tandem::job
