#include "tandem/cli/bench/comm.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tandem/base/median.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/connect.h"
#include "tandem/comm/world.h"

namespace tandem::cli {
namespace {

using Clock = std::chrono::steady_clock;
using c10d::Backend;
using Tensors = std::vector<at::Tensor>;
using Call = std::function<void(Backend&)>;

/// One operation on tensors that are allocated once.
struct Operation {
  Call call;
  int64_t moved = 0;  // half of the bytes that this rank reads and writes, as in a plain copy of that size
};

at::Tensor floats(int64_t bytes) { return at::ones({std::max<int64_t>(1, bytes / 4)}, at::kFloat); }

Tensors parts_of(const at::Tensor& whole, int n) { return whole.chunk(n); }

struct Ranks {
  int rank, size;
};

// `bytes`: size of the whole tensor. If the tensor is split, that is the size of all ranks' parts together.
Operation all_reduce(int64_t bytes, Ranks) {
  Tensors x = {floats(bytes)};
  return {[x](Backend& backend) mutable { backend.allreduce(x)->wait(); }, bytes};
}

Operation broadcast(int64_t bytes, Ranks ranks) {
  Tensors x = {floats(bytes)};
  return {[x](Backend& backend) mutable { backend.broadcast(x)->wait(); }, ranks.rank == 0 ? 0 : bytes};
}

Operation reduce_sum(int64_t bytes, Ranks ranks) {
  Tensors x = {floats(bytes)};
  return {[x](Backend& backend) mutable { backend.reduce(x)->wait(); }, (bytes + bytes / ranks.size) / 2};
}

Operation all_gather(int64_t bytes, Ranks ranks) {
  auto whole = floats(bytes), part = floats(bytes / ranks.size);
  return {[whole, part](Backend& backend) mutable { backend._allgather_base(whole, part)->wait(); }, bytes};
}

Operation reduce_scatter(int64_t bytes, Ranks ranks) {
  auto whole = floats(bytes), part = floats(bytes / ranks.size);
  return {[whole, part](Backend& backend) mutable { backend._reduce_scatter_base(part, whole)->wait(); },
          (bytes + bytes / ranks.size) / 2};
}

Operation all_to_all(int64_t bytes, Ranks) {
  auto in = floats(bytes), out = floats(bytes);
  return {[in, out, none = std::vector<int64_t>()](Backend& backend) mutable {
            backend.alltoall_base(out, in, none, none)->wait();
          },
          bytes};
}

Operation gather(int64_t bytes, Ranks ranks) {
  const auto whole = floats(bytes);
  std::vector<Tensors> out;
  if (ranks.rank == 0) out.push_back(parts_of(whole, ranks.size));
  Tensors in = {floats(bytes / ranks.size)};
  return {[out, in](Backend& backend) mutable { backend.gather(out, in)->wait(); }, ranks.rank == 0 ? bytes : 0};
}

Operation scatter(int64_t bytes, Ranks ranks) {
  const auto whole = floats(bytes);
  std::vector<Tensors> in;
  if (ranks.rank == 0) in.push_back(parts_of(whole, ranks.size));
  Tensors out = {floats(bytes / ranks.size)};
  return {[out, in](Backend& backend) mutable { backend.scatter(out, in)->wait(); }, bytes / ranks.size};
}

/// Each rank sends to the next and receives from the one before.
Operation send_recv(int64_t bytes, Ranks ranks) {
  Tensors out = {floats(bytes)}, in = {floats(bytes)};
  return {[=](Backend& backend) mutable {
            const auto sent = backend.send(out, (ranks.rank + 1) % ranks.size, 0);
            backend.recv(in, (ranks.rank + ranks.size - 1) % ranks.size, 0)->wait();
            sent->wait();
          },
          bytes};
}

Operation barrier(int64_t, Ranks) {
  return {[](Backend& backend) { backend.barrier()->wait(); }, 0};
}

Backend& cpu_backend(const comm::ProcessGroup& group) { return *group.handle()->getBackend(c10::DeviceType::CPU); }

using Maker = Operation (*)(int64_t bytes, Ranks ranks);
const std::vector<std::pair<std::string, Maker>>& makers() {
  static const std::vector<std::pair<std::string, Maker>> all = {{"all_reduce", all_reduce},
                                                                 {"broadcast", broadcast},
                                                                 {"reduce_sum", reduce_sum},
                                                                 {"all_gather", all_gather},
                                                                 {"gather", gather},
                                                                 {"scatter", scatter},
                                                                 {"reduce_scatter", reduce_scatter},
                                                                 {"all_to_all", all_to_all},
                                                                 {"send_recv", send_recv},
                                                                 {"barrier", barrier}};
  return all;
}

/// What tandem does in its own way between processes, and Gloo's.
struct OwnWay {
  const char* name;
  std::function<void()> (*make)(int64_t bytes, comm::ProcessGroup& gloo);
  Maker gloos;
};

/// An exchange and a sum.
std::function<void()> own_reduce_scatter(int64_t bytes, comm::ProcessGroup& gloo) {
  return [whole = floats(bytes), &gloo] { comm::reduce_scatter(whole, gloo); };
}

/// Messages, if parts are large.
std::function<void()> own_all_gather(int64_t bytes, comm::ProcessGroup& gloo) {
  const auto part = floats(bytes / gloo.size());
  const std::vector<int64_t> sizes(static_cast<size_t>(gloo.size()), part.numel());
  return [part, sizes, &gloo] { comm::all_gather(part, gloo, 0, sizes); };
}

constexpr std::array<OwnWay, 2> kOwnWays = {
    {{"reduce_scatter", own_reduce_scatter, reduce_scatter}, {"all_gather", own_all_gather, all_gather}}};

/// One rank of the bench.
class CallMeasurement {
 public:
  CallMeasurement(comm::ProcessGroup& local, comm::ProcessGroup& gloo, double seconds_a_case)
      : local_(local), gloo_(gloo), budget_(seconds_a_case) {}

  /// Through `own`, a group of the same ranks.
  BenchCase measure(const std::string& name, Maker make, int64_t bytes, comm::ProcessGroup& own) {
    const auto operation = make(bytes, {local_.rank(), local_.size()});
    const auto source = floats(operation.moved), target = floats(operation.moved);
    const auto copy = [&] {
      if (operation.moved > 0) std::memcpy(target.data_ptr(), source.const_data_ptr(), operation.moved);
    };
    const auto ours = [&] { operation.call(cpu_backend(own)); };
    const auto theirs = [&] { operation.call(cpu_backend(gloo_)); };
    return compare(name, bytes, ours, theirs, copy);
  }

  BenchCase measure_over_gloo(const OwnWay& own, int64_t bytes) {
    const auto gloos = own.gloos(bytes, {local_.rank(), local_.size()});
    const auto ours = own.make(bytes, gloo_);
    const auto theirs = [&] { gloos.call(cpu_backend(gloo_)); };
    return compare(own.name, bytes, ours, theirs, [] {});
  }

 private:
  static constexpr int kRounds = 5;

  template <class Ours, class Theirs, class Copy>
  BenchCase compare(const std::string& name, int64_t bytes, const Ours& ours, const Theirs& theirs, const Copy& copy) {
    const int64_t our_calls = calls_for(ours), their_calls = calls_for(theirs);
    std::vector<double> our_seconds, their_seconds, copy_seconds;
    for (int round = 0; round < kRounds; ++round) {  // in turn: a machine that slows down slows all
      our_seconds.push_back(time(ours, our_calls));
      their_seconds.push_back(time(theirs, their_calls));
      copy_seconds.push_back(time(copy, our_calls));
    }
    return {name, local_.size(), bytes, median(our_seconds), median(their_seconds), median(copy_seconds)};
  }

  /// Seconds per call of the slowest rank.
  template <class Body>
  double time(const Body& body, int64_t calls) {
    comm::barrier(local_);
    const auto start = Clock::now();
    for (int64_t i = 0; i < calls; ++i) body();
    const std::chrono::duration<double> took = Clock::now() - start;
    return comm::reduce_number(took.count() / static_cast<double>(calls), comm::Reduce::max, local_);
  }

  /// Number of calls that fill a part of the case's time; equal on all ranks.
  template <class Body>
  int64_t calls_for(const Body& body) {
    body();  // warm-up: connections, memory pages
    const double once = time(body, 2);
    return std::clamp<int64_t>(static_cast<int64_t>(budget_ / (2 * kRounds) / once), 1, 20'000);
  }

  comm::ProcessGroup &local_, &gloo_;
  double budget_;
};

}  // namespace

CommBenchResult bench_comm(const CommBench& bench) {
  setenv("TORCH_FR_BUFFER_SIZE", "0", 1);  // libtorch's flight recorder does not support several ranks in a process
  const auto store = c10::make_intrusive<c10d::HashStore>();
  CommBenchResult result;
  const auto is_asked = [&](const std::string& name) {
    return bench.operations.empty() || std::ranges::find(bench.operations, name) != bench.operations.end();
  };
  comm::run_ranks(bench.ranks,
                  [&](comm::ProcessGroup& local) {
                    const auto connected = [&](comm::Transport transport) {
                      return comm::ProcessGroup(comm::process_connect(store, std::chrono::minutes(2), transport),
                                                name_of(transport), local.members(), local.rank());
                    };
                    auto segments = connected(comm::Transport::segments), gloo = connected(comm::Transport::sockets);
                    CallMeasurement measurement(local, gloo, bench.seconds_a_case);
                    const auto keep = [&](std::vector<BenchCase>& cases, const BenchCase& one) {
                      if (local.rank() == 0) cases.push_back(one);
                    };
                    for (const auto& [name, make] : makers()) {
                      if (!is_asked(name)) continue;
                      for (const auto bytes : name == "barrier" ? std::vector<int64_t>{0} : bench.sizes) {
                        keep(result.cases, measurement.measure(name, make, bytes, local));
                        if (name != "send_recv") {  // goes over sockets
                          keep(result.over_segments, measurement.measure(name, make, bytes, segments));
                        }
                      }
                    }
                    for (const auto& own : kOwnWays) {
                      if (!is_asked(own.name)) continue;
                      for (const auto bytes : bench.sizes) {
                        keep(result.over_gloo, measurement.measure_over_gloo(own, bytes));
                      }
                    }
                  },
                  {.threads = 1});
  return result;
}

std::vector<std::string> bench_operations() {
  std::vector<std::string> names;
  for (const auto& [name, make] : makers()) names.push_back(name);
  return names;
}

}  // namespace tandem::cli
