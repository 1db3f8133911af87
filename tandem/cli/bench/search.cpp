#include "tandem/cli/bench/search.h"

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/log.h"
#include "tandem/base/median.h"
#include "tandem/base/table.h"
#include "tandem/cli/bench/own_side.h"
#include "tandem/cli/bench/peer.h"
#include "tandem/cli/bench/rounds.h"
#include "tandem/cli/result.h"
#include "tandem/settings/settings.h"

namespace tandem::cli {
namespace {

const std::vector<std::string> kSearchPeers = {"torch"};

std::vector<std::string> own_settings(const SearchBench& bench, const SearchCase& one) {
  std::vector<std::string> words = {"model=search:darts",
                                    "threads=1",
                                    "search.order=" + std::to_string(one.order),
                                    "model.channels=" + std::to_string(bench.channels),
                                    "model.cells=" + std::to_string(bench.cells),
                                    "data.size=" + std::to_string(bench.size),
                                    "train.batch=" + std::to_string(bench.batch),
                                    "head.classes=" + std::to_string(bench.classes)};
  if (one.recomputes) words.emplace_back("recompute=sqrt");
  words.insert(words.end(), bench.settings.begin(), bench.settings.end());
  return words;
}

/// Nullopt if the script is gone.
std::optional<std::vector<std::string>> peer_words(const SearchBench& bench, int order, int ranks) {
  auto command = peer_command("search");
  if (!command) return std::nullopt;
  for (const auto number : {int64_t{order}, bench.batch, bench.channels, bench.cells, bench.size, bench.classes}) {
    command->push_back(std::to_string(number));
  }
  return launched(ranks, *command);
}

/// Ours, plain and with recomputation, and the peer, in turn.
void compare_searches(const SearchBench& bench, int order, int ranks, SearchResult& result) {
  const auto what = "order " + std::to_string(order) + ", ranks " + std::to_string(ranks);
  std::vector<SearchCase> cases = {{.order = order, .ranks = ranks}};
  if (order == 2 && bench.with_recompute) cases.push_back({.order = order, .ranks = ranks, .recomputes = true});
  std::vector<std::unique_ptr<OwnSide>> own;
  for (const auto& one : cases) {
    own.push_back(std::make_unique<OwnSide>(what, launched(ranks, step_command(own_settings(bench, one)))));
  }
  std::optional<Peer> peer;
  if (bench.with_peers) peer.emplace("torch, " + what, peer_words(bench, order, ranks));
  const auto peer_bytes = peer ? peer->ask("bytes", 1) : std::nullopt;
  std::vector<double> peer_rounds;
  for (int64_t round = 0; round < bench.rounds; ++round) {
    log::info(what + ": round " + std::to_string(round + 1) + " of " + std::to_string(bench.rounds));
    for (const auto& side : own) side->take(bench.steps);
    if (!peer) continue;
    if (const auto steps = peer->ask(std::to_string(bench.steps), static_cast<size_t>(bench.steps))) {
      peer_rounds.push_back(median(*steps));
    }
  }
  const bool is_compared = peer && !peer->is_missing();
  result.is_peer_missing |= peer && !is_compared;
  for (size_t i = 0; i < cases.size(); ++i) {
    auto& one = cases[i];
    one.seconds = median(own[i]->rounds());
    one.peak_bytes = own[i]->facts().at("peak_bytes").get<int64_t>();
    if (is_compared) {
      one.peer_seconds = median(peer_rounds);
      one.speedup = ratio_of_rounds(peer_rounds, own[i]->rounds());
      one.peer_peak_bytes = static_cast<int64_t>(peer_bytes->front());
    }
    result.cases.push_back(one);
  }
}

const std::vector<settings::Setting>& search_bench_settings() {
  static const std::vector<settings::Setting> settings = {
      {.key = "orders", .default_value = std::vector<double>{2, 1}, .doc = "of the search", .range = {1, 2}},
      {.key = "ranks",
       .default_value = std::vector<double>{1, 2},
       .doc = "numbers of ranks, each a process with one thread",
       .range = {1, 64}},
      {"channels", int64_t{8}, "of the first cells", {2, 4096}},
      {"cells", int64_t{5}, "of the network", {3, 1000}},
      {"size", int64_t{32}, "height and width of an image", {8, 1024}},
      {"batch", int64_t{32}, "images of a step, over all ranks", {1, 1e6}},
      {"classes", int64_t{10}, "number of classes", {2, 1e6}},
      {"rounds", int64_t{3}, "in which the sides take turns", {1, 1000}},
      {"steps", int64_t{1}, "of each side in a round", {1, 1000}},
      {"recompute", true, "measure order 2 also with each block computed again"},
      {"peers", kSearchPeers, "peers to compare with; empty: none"},
      {"settings", std::vector<std::string>(), "more settings of ours, such as search.hvp=fd"},
  };
  return settings;
}

SearchBench read_search_bench(const settings::Settings& settings) {
  for (const auto& name : settings.get_list("peers")) {
    if (name != kSearchPeers.front()) {
      throw SettingsError("peers names '" + name + "', wanted " + kSearchPeers.front());
    }
  }
  SearchBench bench{.orders = {},
                    .ranks = {},
                    .channels = settings.get_int("channels"),
                    .cells = settings.get_int("cells"),
                    .size = settings.get_int("size"),
                    .batch = settings.get_int("batch"),
                    .classes = settings.get_int("classes"),
                    .rounds = settings.get_int("rounds"),
                    .steps = settings.get_int("steps"),
                    .with_recompute = settings.get_bool("recompute"),
                    .with_peers = !settings.get_list("peers").empty(),
                    .settings = settings.get_list("settings")};
  for (const double order : settings.get_numbers("orders")) bench.orders.push_back(std::llround(order));
  for (const double ranks : settings.get_numbers("ranks")) bench.ranks.push_back(std::llround(ranks));
  return bench;
}

template <class Number>
nlohmann::json json_or_null(const std::optional<Number>& number) {
  return number ? nlohmann::json(*number) : nlohmann::json();
}

nlohmann::json json_of(const SearchCase& one) {
  return {{"order", one.order},
          {"ranks", one.ranks},
          {"recompute", one.recomputes},
          {"seconds", one.seconds},
          {"peer_seconds", json_or_null(one.peer_seconds)},
          {"speedup", json_or_null(one.speedup)},
          {"peak_bytes", one.peak_bytes},
          {"peer_peak_bytes", json_or_null(one.peer_peak_bytes)}};
}

}  // namespace

SearchResult bench_search(const SearchBench& bench) {
  SearchResult result;
  for (const auto order : bench.orders) {
    for (const auto ranks : bench.ranks) {
      compare_searches(bench, static_cast<int>(order), static_cast<int>(ranks), result);
    }
  }
  return result;
}

settings::Schema bench_search_schema() { return search_bench_settings(); }

int run_bench_search(const Arguments& arguments) {
  settings::Settings settings{settings::Schema(search_bench_settings())};
  settings.apply({arguments.words.begin() + 1, arguments.words.end()});
  const auto result = bench_search(read_search_bench(settings));
  const auto missing = result.is_peer_missing ? kSearchPeers : std::vector<std::string>();
  Table table({"order", "ranks", "recompute", "s", "peer's s", "times as fast", "peak of a rank", "peer's"});
  auto list = nlohmann::json::array();
  for (const auto& one : result.cases) {
    table.add_row({std::to_string(one.order), std::to_string(one.ranks), one.recomputes ? "sqrt" : "–",
                   format_number("%.3f", one.seconds), format_number("%.3f", one.peer_seconds),
                   format_number("%.2f", one.speedup), format_bytes(one.peak_bytes),
                   one.peer_peak_bytes ? format_bytes(*one.peer_peak_bytes) : "–"});
    list.push_back(json_of(one));
  }
  write_result(arguments, table.str(), {{"cases", list}, {"missing", missing}});
  check_peers(missing, settings.given("peers"));
  return 0;
}

}  // namespace tandem::cli
