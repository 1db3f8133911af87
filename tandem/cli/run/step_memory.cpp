#include "tandem/cli/run/step_memory.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tandem/base/format.h"
#include "tandem/cli/run/ranks.h"

namespace tandem::cli {
namespace {

/// Indices of the moments that a picture needs: the lowest and the highest of each of some stretches, and the ends.
std::vector<size_t> thinned(const std::vector<memory::Moment>& moments) {
  constexpr size_t kStretches = 500;
  std::vector<size_t> kept;
  const auto bytes = [&](size_t i) { return total_of(moments[i].live); };
  const size_t stretches = std::min(kStretches, moments.size());
  for (size_t i = 0; i < stretches; ++i) {
    const size_t begin = i * moments.size() / stretches, end = (i + 1) * moments.size() / stretches;
    size_t low = begin, high = begin;
    for (size_t k = begin; k < end; ++k) {
      if (bytes(k) < bytes(low)) low = k;
      if (bytes(k) > bytes(high)) high = k;
    }
    kept.push_back(std::min(low, high));
    if (low != high) kept.push_back(std::max(low, high));
  }
  if (!moments.empty()) kept.insert(kept.end(), {0, moments.size() - 1});
  std::ranges::sort(kept);
  kept.erase(std::ranges::unique(kept).begin(), kept.end());
  return kept;
}

/// Neighbouring moments of one name; those without a name belong to the stretch before.
template <class Name>
nlohmann::json bands_of(const std::vector<memory::Moment>& moments, const Name& name_of) {
  auto bands = nlohmann::json::array();
  std::string last;
  for (const auto& moment : moments) {
    const std::string name = name_of(moment);
    if (!name.empty() && name != last) {
      bands.push_back({{"name", name}, {"begin", moment.seconds}, {"end", moment.seconds}});
      last = name;
    }
    if (!bands.empty()) bands.back()["end"] = moment.seconds;
  }
  for (size_t i = 1; i < bands.size(); ++i) bands[i - 1]["end"] = bands[i]["begin"];
  return bands;
}

nlohmann::json timeline_json(const memory::Timeline& timeline) {
  const auto& moments = timeline.moments;
  const auto kept = thinned(moments);
  nlohmann::json json = {{"seconds", nlohmann::json::array()}, {"categories", nlohmann::json::object()}};
  for (const auto i : kept) json["seconds"].push_back(moments[i].seconds);
  for (size_t k = 0; k < kCategoryNames.size(); ++k) {
    auto& series = json["categories"][std::string(kCategoryNames[k])] = nlohmann::json::array();
    for (const auto i : kept) series.push_back(moments[i].live[k]);
  }
  json["phases"] =
      bands_of(moments, [](const auto& moment) { return std::string(kPhaseNames[static_cast<size_t>(moment.phase)]); });
  json["blocks"] = bands_of(moments, [](const auto& moment) {
    return moment.phase == Phase::optimizer ? std::string(kPhaseNames[2]) : block_name(moment.block);
  });
  return json;
}

nlohmann::json blocks_json(const memory::Account& account) {
  auto blocks = nlohmann::json::array();
  for (const auto& [block, live, at_peak] : account.blocks) {
    const auto name = block_name(block);
    blocks.push_back(memory_json(at_peak));
    blocks.back()["name"] = name.empty() ? "-" : name;
    blocks.back()["saved_bytes"] = live[static_cast<size_t>(Category::activations)];
  }
  return blocks;
}

std::vector<report::Band> bands_from(const nlohmann::json& bands) {
  std::vector<report::Band> result;
  for (const auto& band : bands) result.push_back({band.at("name"), band.at("begin"), band.at("end")});
  return result;
}

}  // namespace

std::string plan_text(const memory::RecomputePlan& plan) {
  const auto is_plain = [](const memory::PlanNode& node) { return node.inner.empty() && node.keep == 0; };
  return std::ranges::all_of(plan, is_plain) ? "" : to_text(plan);
}

int64_t gathered_bytes(const CategoryBytes& at_peak, const CategoryBytes& between_steps) {
  constexpr auto kParameters = static_cast<size_t>(Category::parameters);
  return std::max<int64_t>(0, at_peak[kParameters] - between_steps[kParameters]);
}

std::string gathered_text(int64_t gathered_bytes) {
  return gathered_bytes == 0 ? "" : " · " + format_bytes(gathered_bytes) + " of the parameters are gathered then";
}

nlohmann::json recompute_json(const job::Recomputation& recomputation) {
  return {{"plan", plan_text(recomputation.plan)}, {"predicted_slowdown", recomputation.slowdown}};
}

nlohmann::json step_memory_json(const job::StepMemory& memory) {
  constexpr auto kActivations = static_cast<size_t>(Category::activations);
  auto json = memory_json(memory.at_peak);
  const auto& timeline = memory.timeline;
  const auto peak = timeline.moments.empty() ? memory::Moment() : timeline.moments[timeline.peak];
  json["peak_block"] = block_name(peak.block);
  json["peak_phase"] = kPhaseNames[static_cast<size_t>(peak.phase)];
  json["gathered_bytes"] = gathered_bytes(memory.at_peak, memory.predicted.account.live);
  json["predicted_peak_bytes"] = memory.predicted.account.peak_bytes();
  json["activations_peak_bytes"] = timeline.highest[kActivations];
  json["predicted_activations_peak_bytes"] = memory.predicted.highest[kActivations];
  json["saved_bytes"] = timeline.account.live[kActivations];
  json["seconds"] = memory.seconds;
  json["recompute"] = recompute_json(memory.recomputation);
  json["blocks"] = blocks_json(timeline.account);
  json["timeline"] = timeline_json(timeline);
  return json;
}

report::MemoryCurve curve_of(const nlohmann::json& result, const std::string& name) {
  const auto& timeline = result.at("timeline");
  report::MemoryCurve curve{.name = name, .seconds = timeline.at("seconds").get<std::vector<double>>()};
  curve.live.resize(curve.seconds.size());
  for (size_t k = 0; k < kCategoryNames.size(); ++k) {
    const auto& series = timeline.at("categories").at(std::string(kCategoryNames[k]));
    for (size_t i = 0; i < curve.live.size(); ++i) curve.live[i][k] = series.at(i).get<int64_t>();
  }
  for (size_t i = 1; i < curve.live.size(); ++i) {
    if (total_of(curve.live[i]) > total_of(curve.live[curve.peak])) curve.peak = i;
  }
  curve.phases = bands_from(timeline.at("phases"));
  curve.blocks = bands_from(timeline.at("blocks"));
  return curve;
}

}  // namespace tandem::cli
