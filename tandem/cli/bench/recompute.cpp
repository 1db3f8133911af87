#include "tandem/cli/bench/recompute.h"

#include <chrono>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/log.h"
#include "tandem/base/median.h"
#include "tandem/base/seconds.h"
#include "tandem/cli/bench/recompute_sides.h"
#include "tandem/job/rank_memory.h"
#include "tandem/job/ranks.h"
#include "tandem/memory/meter.h"

namespace tandem::cli {
namespace {

using Clock = std::chrono::steady_clock;

class RecomputeMeasurement {
 public:
  RecomputeMeasurement(const RecomputeBench& bench, comm::ProcessGroup& group)
      : bench_(bench), group_(group), peer_(bench) {}

  RecomputeResult operator()() {
    add_peers();
    add_own(std::nullopt);
    for (const auto& way : result_.peer) add_own(way.bytes);
    plan_alone();
    for (int64_t round = 0; round < bench_.rounds; ++round) {
      log::info("round " + std::to_string(round + 1) + " of " + std::to_string(bench_.rounds));
      take_round();
    }
    for (auto& step : own_) result_.own.push_back(step->way());
    if (peer_.is_missing()) result_.peer.clear();
    result_.is_peer_missing = bench_.with_peers && peer_.is_missing();
    return std::move(result_);
  }

 private:
  void add_peers() {
    std::vector<int64_t> all = {0};
    all.insert(all.end(), bench_.segments.begin(), bench_.segments.end());
    for (const auto segments : all) {
      if (const auto way = peer_.way(segments)) result_.peer.push_back(*way);
    }
  }

  void add_own(std::optional<int64_t> budget) {
    try {
      own_.push_back(std::make_unique<OwnStep>(bench_, budget, group_));
    } catch (const SettingsError& error) {
      log::warn("left out: " + message_of(error));
    }
  }

  /// Searches for the plans of all budgets once more, with a clock, and adds budgets between the least and the most.
  void plan_alone() {
    const auto job = recompute_job(bench_, {"recompute=optimal", "memory.budget=1G"});
    const auto shape = shape_of(job);
    auto start = Clock::now();
    const auto stages = rehearse_stages(job, shape, {shape.classes}, /*in_parts=*/true).front();
    result_.rehearsal_seconds = seconds_since(start);
    const auto least = 1.01 * static_cast<double>(memory::least_budget(stages).bytes);  // a bound, a little too low
    const auto most = static_cast<double>(own_.front()->way().bytes);
    for (int64_t i = 0; i < bench_.budgets; ++i) {
      add_own(static_cast<int64_t>(
          least * std::pow(most / least, static_cast<double>(i) / static_cast<double>(bench_.budgets))));
    }
    for (const auto& step : own_) {
      if (!step->way().budget) continue;
      start = Clock::now();
      memory::plan_optimal(stages, *step->way().budget);
      result_.planning_seconds = std::max(result_.planning_seconds, seconds_since(start));
    }
  }

  void take_round() {
    for (size_t i = 0; i < std::max(own_.size(), result_.peer.size()); ++i) {
      if (i < result_.peer.size()) peer_.time(result_.peer[i]);
      if (i < own_.size()) own_[i]->time();
    }
  }

  const RecomputeBench& bench_;
  comm::ProcessGroup& group_;
  RecomputePeer peer_;
  std::vector<std::unique_ptr<OwnStep>> own_;
  RecomputeResult result_;
};

std::string segments_text(const RecomputeWay& peer) {
  return peer.segments == 0 ? "nothing recomputed" : std::to_string(peer.segments) + " segments";
}

/// The way with the fewest bytes that is not slower; null: there is none.
const RecomputeWay* smallest_as_fast(const RecomputeResult& result, const RecomputeWay& peer) {
  const RecomputeWay* best = nullptr;
  for (const auto& own : result.own) {
    if (median_ratio(peer, own) >= 1 && (best == nullptr || own.bytes < best->bytes)) best = &own;
  }
  return best;
}

}  // namespace

double median_ratio(const RecomputeWay& first, const RecomputeWay& second) {
  std::vector<double> ratios;
  for (size_t i = 0; i < first.seconds.size(); ++i) ratios.push_back(first.seconds[i] / second.seconds[i]);
  return median(ratios);
}

double RecomputeCase::speedup() const { return median_ratio(*peer, *own); }

double RecomputeCase::bytes_ratio() const { return static_cast<double>(own->bytes) / static_cast<double>(peer->bytes); }

RecomputeResult bench_recompute(const RecomputeBench& bench) {
  memory::install_meter();
  RecomputeResult result;
  on_ranks(recompute_job(bench, {}), [&](comm::ProcessGroup& group) { result = RecomputeMeasurement(bench, group)(); });
  return result;
}

std::vector<RecomputeCase> cases_of(const RecomputeResult& result) {
  if (result.peer.empty()) return {};
  std::vector<RecomputeCase> cases = {{"nothing recomputed by either", &result.peer.front(), &result.own.front()}};
  for (const auto& peer : result.peer) {
    for (const auto& own : result.own) {
      if (own.budget != peer.bytes) continue;
      cases.push_back({"at its bytes, " + segments_text(peer), &peer, &own});
      break;
    }
  }
  for (const auto& peer : result.peer) {
    if (const auto* own = smallest_as_fast(result, peer)) {
      cases.push_back({"at its time, " + segments_text(peer), &peer, own});
    }
  }
  return cases;
}

}  // namespace tandem::cli
