#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/median.h"
#include "tandem/base/table.h"
#include "tandem/cli/bench/peer.h"
#include "tandem/cli/bench/recompute.h"
#include "tandem/cli/result.h"
#include "tandem/settings/settings.h"

namespace tandem::cli {
namespace {

/// A model of the peer, and the number of its modules: stem, residual blocks and head.
struct PeerModel {
  std::string_view name;
  int64_t modules;
};
constexpr std::array<PeerModel, 3> kPeerModels = {{{"resnet18", 10}, {"resnet34", 18}, {"resnet50", 18}}};

const std::vector<std::string> kRecomputePeers = {"torch"};

const std::vector<settings::Setting>& recompute_settings() {
  static const std::vector<settings::Setting> settings = {
      {.key = "model",
       .default_value = std::string("resnet50"),
       .doc = "the backbone",
       .choices = {"resnet18", "resnet34", "resnet50"}},
      {"batch", int64_t{32}, "images", {2, 1e6}},
      {"size", int64_t{224}, "height and width of an image", {8, 4096}},
      {"classes", int64_t{1000}, "number of classes", {1, 1e9}},
      {"threads", int64_t{1}, "threads of each side", {1, 1024}},
      {.key = "segments",
       .default_value = std::vector<double>{2, 3, 4, 6, 8},
       .doc = "numbers of segments of the peer, besides none",
       .range = {1, 18}},
      {"budgets", int64_t{6}, "budgets of ours besides the peer's bytes", {0, 100}},
      {"peers", kRecomputePeers, "peers to compare with; empty: none"},
      {"rounds", int64_t{5}, "steps of each way that are timed, in turn", {1, 1000}},
  };
  return settings;
}

RecomputeBench read_recompute_bench(const settings::Settings& settings) {
  for (const auto& name : settings.get_list("peers")) {
    if (name != kRecomputePeers.front())
      throw SettingsError("peers names '" + name + "', wanted " + kRecomputePeers.front());
  }
  RecomputeBench bench{.model = settings.get_string("model"),
                       .batch = settings.get_int("batch"),
                       .size = settings.get_int("size"),
                       .classes = settings.get_int("classes"),
                       .threads = static_cast<int>(settings.get_int("threads")),
                       .budgets = settings.get_int("budgets"),
                       .rounds = settings.get_int("rounds"),
                       .with_peers = !settings.get_list("peers").empty()};
  const auto modules = std::ranges::find(kPeerModels, bench.model, &PeerModel::name)->modules;
  for (const double count : settings.get_numbers("segments")) {
    if (count > static_cast<double>(modules)) {
      throw SettingsError("segments has " + std::to_string(std::llround(count)) + ", wanted at most the " +
                          std::to_string(modules) + " modules of " + bench.model);
    }
    bench.segments.push_back(std::llround(count));
  }
  return bench;
}

nlohmann::json json_of(const RecomputeWay& way, const RecomputeWay& none) {
  return {{"segments", way.segments},
          {"budget", way.budget ? nlohmann::json(*way.budget) : nlohmann::json()},
          {"plan", way.plan},
          {"predicted_slowdown", way.predicted_slowdown},
          {"slowdown", median_ratio(way, none)},
          {"bytes", way.bytes},
          {"seconds", median(way.seconds)}};
}

nlohmann::json json_of(const RecomputeCase& one, const RecomputeBench& bench, const RecomputeResult& result) {
  return {{"name", one.name},
          {"model", bench.model},
          {"batch", bench.batch},
          {"size", bench.size},
          {"segments", one.peer->segments},
          {"peer_seconds", median(one.peer->seconds)},
          {"peer_slowdown", median_ratio(*one.peer, result.peer.front())},
          {"peer_bytes", one.peer->bytes},
          {"seconds", median(one.own->seconds)},
          {"slowdown", median_ratio(*one.own, result.own.front())},
          {"bytes", one.own->bytes},
          {"speedup", one.speedup()},
          {"bytes_ratio", one.bytes_ratio()},
          {"plan", one.own->plan}};
}

std::vector<std::string> missing_of(const RecomputeResult& result) {
  return result.is_peer_missing ? kRecomputePeers : std::vector<std::string>();
}

nlohmann::json json_of(const RecomputeBench& bench, const RecomputeResult& result) {
  nlohmann::json json = {{"cases", nlohmann::json::array()},
                         {"peer", nlohmann::json::array()},
                         {"own", nlohmann::json::array()},
                         {"missing", missing_of(result)},
                         {"rehearsal_seconds", result.rehearsal_seconds},
                         {"planning_seconds", result.planning_seconds}};
  for (const auto& one : cases_of(result)) json["cases"].push_back(json_of(one, bench, result));
  for (const auto& way : result.peer) json["peer"].push_back(json_of(way, result.peer.front()));
  for (const auto& way : result.own) json["own"].push_back(json_of(way, result.own.front()));
  return json;
}

std::string text_of(const RecomputeResult& result) {
  Table cases({"tandem against checkpoint_sequential", "s", "peer's", "times as fast", "bytes", "peer's",
               "of its bytes", "slowdown", "peer's"});
  for (const auto& one : cases_of(result)) {
    cases.add_row(
        {one.name, format_number("%.3f", median(one.own->seconds)), format_number("%.3f", median(one.peer->seconds)),
         format_number("%.2f", one.speedup()), format_bytes(one.own->bytes), format_bytes(one.peer->bytes),
         format_number("%.2f", one.bytes_ratio()), format_number("%.2f", median_ratio(*one.own, result.own.front())),
         format_number("%.2f", median_ratio(*one.peer, result.peer.front()))});
  }
  Table own({"tandem within a budget of", "bytes", "s", "slowdown", "predicted"});
  for (const auto& way : result.own) {
    own.add_row({way.budget ? format_count(*way.budget) : "none", format_count(way.bytes),
                 format_number("%.3f", median(way.seconds)),
                 format_number("%.2f", median_ratio(way, result.own.front())),
                 format_number("%.2f", way.predicted_slowdown)});
  }
  return (result.peer.empty() ? "" : cases.str() + "\n") + own.str() + "\nrehearsal " +
         format_number("%.2f", result.rehearsal_seconds) + " s, search for a plan at most " +
         format_number("%.3f", result.planning_seconds) + " s\n";
}

}  // namespace

settings::Schema recompute_schema() { return recompute_settings(); }

int run_recompute(const Arguments& arguments) {
  settings::Settings settings{settings::Schema(recompute_settings())};
  settings.apply({arguments.words.begin() + 1, arguments.words.end()});
  const auto bench = read_recompute_bench(settings);
  const auto result = bench_recompute(bench);
  write_result(arguments, text_of(result), json_of(bench, result));
  check_peers(missing_of(result), settings.given("peers"));
  return 0;
}

}  // namespace tandem::cli
