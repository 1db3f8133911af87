#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/table.h"
#include "tandem/cli/bench/ddp.h"
#include "tandem/cli/bench/peer.h"
#include "tandem/cli/bench/rounds.h"
#include "tandem/cli/result.h"
#include "tandem/settings/settings.h"

namespace tandem::cli {
namespace {

const std::vector<std::string> kDdpPeers = {"torch"};
const std::vector<std::string> kModes = {"threads", "processes"};

const std::vector<settings::Setting>& ddp_settings() {
  static const std::vector<settings::Setting> settings = {
      {"names", ddp_names(), "strategies (parallel=NAME)"},
      {"models", ddp_models(), "backbones"},
      {"modes", kModes, "how our ranks run: as threads of one process, or as processes"},
      {"peers", kDdpPeers, "peers to compare with; empty: none"},
      {"ranks", int64_t{2}, "ranks of each side", {1, 64}},
      {"batch", int64_t{32}, "images of a step, over all ranks", {1, 1e6}},
      {"classes", int64_t{100}, "classes of the classifier", {1, 1e9}},
      {"rounds", int64_t{5}, "rounds, in which the sides take their steps in turn", {1, 1000}},
      {"steps", int64_t{5}, "steps of each side in a round, of which the median counts", {1, 1000}},
      {"settings", std::vector<std::string>(), "more settings of our side, such as ddp.bucket=1M"},
  };
  return settings;
}

DdpBench read_ddp_bench(const settings::Settings& settings) {
  check_names(settings, "names", ddp_names());
  check_names(settings, "models", ddp_models());
  check_names(settings, "modes", kModes);
  check_names(settings, "peers", kDdpPeers);
  return {.names = settings.get_list("names"),
          .models = settings.get_list("models"),
          .modes = settings.get_list("modes"),
          .with_peers = !settings.get_list("peers").empty(),
          .ranks = static_cast<int>(settings.get_int("ranks")),
          .batch = settings.get_int("batch"),
          .classes = settings.get_int("classes"),
          .rounds = settings.get_int("rounds"),
          .steps = settings.get_int("steps"),
          .settings = settings.get_list("settings")};
}

nlohmann::json json_of(const DdpCase& one) {
  return {{"name", one.name},
          {"model", one.model},
          {"ranks", one.ranks},
          {"mode", one.mode},
          {"seconds", one.seconds},
          {"peer_seconds", one.peer_seconds ? nlohmann::json(*one.peer_seconds) : nlohmann::json()},
          {"speedup", one.speedup ? nlohmann::json(*one.speedup) : nlohmann::json()},
          {"one_rank_seconds", one.one_rank_seconds},
          {"one_rank_ratio", one.one_rank_ratio},
          {"peak_bytes", one.peak_bytes},
          {"wire_bytes", one.wire_bytes}};
}

}  // namespace

settings::Schema ddp_schema() { return ddp_settings(); }

int run_ddp(const Arguments& arguments) {
  settings::Settings settings{settings::Schema(ddp_settings())};
  settings.apply({arguments.words.begin() + 1, arguments.words.end()});
  const auto result = bench_ddp(read_ddp_bench(settings));
  const auto missing = result.is_peer_missing ? kDdpPeers : std::vector<std::string>();
  Table table({"strategy", "model", "ranks", "ms", "peer's ms", "times as fast", "one rank's ms", "as one rank",
               "peak of a rank", "wire of a step"});
  auto list = nlohmann::json::array();
  for (const auto& one : result.cases) {
    table.add_row({one.name, one.model, std::to_string(one.ranks) + " " + one.mode, in_milliseconds(one.seconds),
                   in_milliseconds(one.peer_seconds), format_number("%.2f", one.speedup),
                   in_milliseconds(one.one_rank_seconds), format_number("%.2f", one.one_rank_ratio),
                   format_bytes(one.peak_bytes), format_bytes(one.wire_bytes)});
    list.push_back(json_of(one));
  }
  write_result(arguments, table.str(), {{"cases", list}, {"missing", missing}});
  check_peers(missing, settings.given("peers"));
  return 0;
}

}  // namespace tandem::cli
