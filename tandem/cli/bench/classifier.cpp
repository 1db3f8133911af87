#include "tandem/cli/bench/classifier.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "tandem/base/cores.h"
#include "tandem/base/error.h"
#include "tandem/base/median.h"
#include "tandem/base/rng.h"
#include "tandem/base/seconds.h"
#include "tandem/classifier/class_sharded_head.h"
#include "tandem/cli/bench/peer.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tandem/memory/meter.h"
#include "tandem/train/optimizer.h"

namespace tandem::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Step {
  double seconds = 0;
  int64_t extra_bytes = 0;
};

/// One rank of Tandem.
class OwnRank {
 public:
  OwnRank(const ClassifierBench& bench, comm::ProcessGroup& group)
      : group_(group),
        is_fused_(bench.form == "fused"),
        sizes_(comm::split_sizes(bench.batch, group.size())),
        head_({.classes = bench.classes,
               .dim = bench.dim,
               .scoring = classifier::cosface(64, 0.35),
               .blocks = {.keep_bytes = bench.keep_bytes, .rows = bench.block, .bf16 = bench.bf16}},
              group),
        optimizer_({head_.parameter()}, {.momentum = 0.9, .nesterov = false, .weight_decay = 5e-4}) {
    const auto [begin, end] = comm::split_range(bench.batch, group.size(), group.rank());
    auto all = at::empty({bench.batch, bench.dim}, at::kFloat);
    fill_normal_(all, 1.0, 1, 1);
    features_ = all.slice(0, begin, end).clone().requires_grad_();
    const auto ids = at::arange(bench.batch, at::kLong) * 7919 % bench.classes;
    targets_ = ids.slice(0, begin, end).contiguous();
  }

  Step step() {
    const CategoryScope scope(Category::activations);
    const auto before = memory::account(group_.rank()).live_bytes();
    memory::reset_peak(group_.rank());
    comm::barrier(group_);
    const auto start = Clock::now();
    if (is_fused_) head_.set_row_update(optimizer_.step_rows(0, 0.1));
    head_.loss(features_, targets_, sizes_).backward();
    optimizer_.step(0.1);
    const auto slowest = comm::reduce_number(seconds_since(start), comm::Reduce::max, group_);
    const int64_t own = memory::account(group_.rank()).peak_bytes() - before;
    const auto extra = comm::reduce_number(own, comm::Reduce::sum, group_);
    optimizer_.zero_grad();
    features_.mutable_grad().reset();
    return {slowest, extra};
  }

  /// Times only the GEMMs of a step, block by block.
  double floor() {
    const at::NoGradGuard no_grad;
    constexpr int64_t kBlock = 2048;
    const auto weight = head_.parameter().tensor.detach();
    const int64_t classes = weight.size(0);
    int64_t batch = 0;
    for (const auto size : sizes_) batch += size;
    const auto x = at::ones({batch, weight.size(1)}), sum = at::zeros_like(x);
    auto products = at::empty({kBlock, batch}), gradient = at::empty({kBlock, weight.size(1)});
    comm::barrier(group_);
    const auto start = Clock::now();
    for (int64_t begin = 0; begin < classes; begin += kBlock) {
      const auto rows = weight.narrow(0, begin, std::min(kBlock, classes - begin));
      auto p = products.narrow(0, 0, rows.size(0)), g = gradient.narrow(0, 0, rows.size(0));
      at::mm_out(p, rows, x.t());
      at::mm_out(g, p, x);
      sum.addmm_(p.t(), rows, 0.0);
    }
    return comm::reduce_number(seconds_since(start), comm::Reduce::max, group_);
  }

 private:
  comm::ProcessGroup& group_;
  bool is_fused_;
  std::vector<int64_t> sizes_;
  classifier::ClassShardedHead head_;
  train::Optimizer optimizer_;
  Tensor features_, targets_;
};

/// Nullopt if the script is gone.
std::optional<std::vector<std::string>> command_of(const ClassifierBench& bench, const std::string& name) {
  auto command = peer_command("classifier");
  if (!command) return std::nullopt;
  command->push_back(name);
  const int threads = default_threads(bench.ranks);
  const int ranks = name == "naive" ? 1 : bench.ranks;
  for (const auto number :
       {bench.classes, bench.dim, bench.batch, int64_t{ranks}, int64_t{threads * bench.ranks / ranks}})
    command->push_back(std::to_string(number));
  return command;
}

std::optional<Step> step_of(Peer& peer) {
  const auto numbers = peer.ask("step", 2);
  if (!numbers) return std::nullopt;
  return Step{numbers->at(0), static_cast<int64_t>(numbers->at(1))};
}

/// Rank 0 collects the results; the other ranks take part in the steps.
class Measurement {
 public:
  Measurement(const ClassifierBench& bench, comm::ProcessGroup& group, ClassifierResult& result)
      : bench_(bench), group_(group), own_(bench, group), result_(result) {}

  void operator()() {
    own_.step();
    own_.floor();
    for (const auto& name : bench_.peers) compare(name);
    while (seconds_.size() < static_cast<size_t>(bench_.rounds)) take_own_step();  // no peer stayed that long
    for (int i = 0; i < 3; ++i) floors_.push_back(own_.floor());
    if (group_.rank() != 0) return;
    result_.seconds = median(seconds_);
    result_.floor_seconds = median(floors_);
    result_.extra_bytes = extra_bytes_;
  }

 private:
  double take_own_step() {
    const auto step = own_.step();
    seconds_.push_back(step.seconds);
    extra_bytes_ = std::max(extra_bytes_, step.extra_bytes);
    return step.seconds;
  }

  /// All ranks run this; only rank 0 talks to the peer.
  void compare(const std::string& name) {
    std::optional<Peer> peer;
    if (group_.rank() == 0) peer.emplace(name, command_of(bench_, name));
    PeerResult result;
    result.name = name;
    std::vector<double> seconds, ratios;
    if (peer) step_of(*peer);  // the first step does not count
    for (int i = 0; i < bench_.rounds && agree(peer && !peer->is_missing()); ++i) {
      const double own = take_own_step();
      if (!peer) continue;
      const auto step = step_of(*peer);
      if (!step) continue;
      seconds.push_back(step->seconds);
      ratios.push_back(step->seconds / own);
      result.extra_bytes = std::max(result.extra_bytes, step->extra_bytes);
    }
    if (!peer) return;
    if (peer->is_missing()) {
      result_.missing.push_back(name);
      return;
    }
    result.seconds = median(seconds);
    result.speedup = median(ratios);
    result_.peers.push_back(result);
  }

  /// Returns rank 0's answer on all ranks.
  bool agree(bool word) { return comm::broadcast_number(word ? 1 : 0, 0, group_) == 1; }

  const ClassifierBench& bench_;
  comm::ProcessGroup& group_;
  OwnRank own_;
  ClassifierResult& result_;
  std::vector<double> seconds_, floors_;
  int64_t extra_bytes_ = 0;
};

}  // namespace

ClassifierResult bench_classifier(const ClassifierBench& bench) {
  memory::install_meter();
  ClassifierResult result;
  result.bench = bench;
  comm::run_ranks(bench.ranks,
                  [&](comm::ProcessGroup& group) {
                    const RankScope scope(group.rank());
                    Measurement(bench, group, result)();
                  },
                  {.timeout = std::chrono::minutes(30)});  // a peer's step may be long
  return result;
}

std::vector<std::string> classifier_peers() { return {"naive", "loss_parallel", "partial_fc"}; }

}  // namespace tandem::cli
