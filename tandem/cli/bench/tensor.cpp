#include "tandem/cli/bench/tensor.h"

#include <algorithm>
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

using Words = std::vector<std::string>;

constexpr int64_t kImageChannels = 3;
const Words kTensorPeers = {"torch"};
const Words kTensorModes = {"threads", "processes"};

/// Ours: the peer's model has its classifier on every rank, and so has ours.
Words own_words(const TensorBench& bench, int64_t batch) {
  Words settings = {"model=vit_tiny",
                    "model.patch=" + std::to_string(bench.patch),
                    "model.heads=" + std::to_string(bench.heads),
                    "embedding=0",
                    "head=softmax",
                    "head.parallel=replicated",
                    "parallel=tensor",
                    "train.clip=0",
                    "threads=1",
                    "data.size=" + std::to_string(bench.size),
                    "head.classes=" + std::to_string(bench.classes),
                    "train.batch=" + std::to_string(batch)};
  settings.insert(settings.end(), bench.settings.begin(), bench.settings.end());
  return settings;
}

Words own_command(const TensorBench& bench, int64_t batch, const std::string& mode) {
  auto command = step_command(own_words(bench, batch));
  if (mode == "processes") return launched(bench.ranks, command);
  command.push_back("ranks=" + std::to_string(bench.ranks));
  return command;
}

/// Each rank's part, without messages.
Words compute_command(const TensorBench& bench, int64_t batch) {
  auto settings = own_words(bench, batch);
  settings.insert(settings.begin(), "alone");
  return launched(bench.ranks, step_command(settings));
}

/// Nullopt if the script is gone.
std::optional<Words> peer_words(const TensorBench& bench, int64_t batch, bool sends) {
  auto command = peer_command("tensor");
  if (!command) return std::nullopt;
  for (const int64_t number : {batch, kImageChannels, bench.size, bench.patch, bench.heads, bench.classes}) {
    command->push_back(std::to_string(number));
  }
  if (!sends) command->push_back("alone");
  return launched(bench.ranks, *command);
}

/// The medians of a peer's rounds; it may be missing.
class PeerRounds {
 public:
  PeerRounds(const std::string& name, const std::optional<Words>& command) : peer_(name, command) {}

  void take(int64_t steps) {
    if (const auto seconds = peer_.ask(std::to_string(steps), static_cast<size_t>(steps))) {
      rounds.push_back(median(*seconds));
    }
  }
  bool is_missing() const { return peer_.is_missing(); }

  std::vector<double> rounds;

 private:
  Peer peer_;
};

void compare(const TensorBench& bench, int64_t batch, TensorResult& result) {
  const auto what = "batch " + std::to_string(batch);
  std::vector<std::unique_ptr<OwnSide>> own;
  for (const auto& mode : bench.modes) {
    own.push_back(std::make_unique<OwnSide>(what + ", " + mode, own_command(bench, batch, mode)));
  }
  OwnSide compute(what + ", computing alone", compute_command(bench, batch));
  std::optional<PeerRounds> peer, peer_compute;
  if (bench.with_peers) {
    peer.emplace("torch, " + what, peer_words(bench, batch, true));
    peer_compute.emplace("torch, " + what + ", computing alone", peer_words(bench, batch, false));
  }
  for (int64_t round = 0; round < bench.rounds; ++round) {
    log::info(what + ": round " + std::to_string(round + 1) + " of " + std::to_string(bench.rounds));
    for (const auto& side : own) side->take(bench.steps);
    compute.take(bench.steps);
    if (!peer) continue;
    peer->take(bench.steps);
    peer_compute->take(bench.steps);
  }
  const bool is_compared = peer && !peer->is_missing() && !peer_compute->is_missing();
  result.is_peer_missing |= peer && !is_compared;
  for (size_t i = 0; i < own.size(); ++i) {
    const auto& rounds = own[i]->rounds();
    auto& one = result.cases.emplace_back(TensorCase{.mode = bench.modes[i],
                                                     .batch = batch,
                                                     .seconds = median(rounds),
                                                     .compute_seconds = median(compute.rounds()),
                                                     .peak_bytes = own[i]->facts().at("peak_bytes").get<int64_t>(),
                                                     .wire_bytes = own[i]->facts().at("wire_bytes").get<int64_t>()});
    if (!is_compared) continue;
    one.peer_seconds = median(peer->rounds);
    one.peer_compute_seconds = median(peer_compute->rounds);
    one.speedup = ratio_of_rounds(peer->rounds, rounds);
    one.beyond = ratio_of_rounds(difference_of_rounds(rounds, compute.rounds()),
                                 difference_of_rounds(peer->rounds, peer_compute->rounds));
  }
}

const std::vector<settings::Setting>& tensor_settings() {
  static const std::vector<settings::Setting> settings = {
      {.key = "modes",
       .default_value = kTensorModes,
       .doc = "how our ranks run: as threads of one process, or as processes"},
      {"batches", std::vector<double>{16, 64}, "images of a step, a case each", {1, 1e6}},
      {.key = "peers", .default_value = kTensorPeers, .doc = "peers to compare with; empty: none"},
      {"ranks", int64_t{2}, "ranks of each side, of one thread each", {1, 64}},
      {"size", int64_t{64}, "pixels a side of the images", {1, 4096}},
      {"patch", int64_t{8}, "pixels a side that make a token", {1, 1024}},
      {"heads", int64_t{4}, "heads of the attention, a multiple of the ranks, as the peer needs", {1, 192}},
      {"classes", int64_t{100}, "classes of the classifier", {1, 1e9}},
      {"rounds", int64_t{5}, "rounds, in which the sides take their steps in turn", {1, 1000}},
      {"steps", int64_t{5}, "steps of each side in a round, of which the median counts", {1, 1000}},
      {"settings", std::vector<std::string>(), "more settings of our side, such as comm.transport=sockets"},
  };
  return settings;
}

TensorBench read_tensor_bench(const settings::Settings& settings) {
  TensorBench bench = {.modes = settings.get_list("modes"),
                       .batches = {},
                       .with_peers = !settings.get_list("peers").empty(),
                       .ranks = static_cast<int>(settings.get_int("ranks")),
                       .size = settings.get_int("size"),
                       .patch = settings.get_int("patch"),
                       .heads = settings.get_int("heads"),
                       .classes = settings.get_int("classes"),
                       .rounds = settings.get_int("rounds"),
                       .steps = settings.get_int("steps"),
                       .settings = settings.get_list("settings")};
  for (const double batch : settings.get_numbers("batches")) bench.batches.push_back(std::llround(batch));
  if (bench.heads % bench.ranks != 0) {
    throw SettingsError("heads is " + std::to_string(bench.heads) + " with ranks " + std::to_string(bench.ranks) +
                        ", wanted a multiple of them");
  }
  return bench;
}

nlohmann::json json_of(const TensorCase& one) {
  return {{"mode", one.mode},
          {"batch", one.batch},
          {"seconds", one.seconds},
          {"compute_seconds", one.compute_seconds},
          {"peer_seconds", number_or_null(one.peer_seconds)},
          {"peer_compute_seconds", number_or_null(one.peer_compute_seconds)},
          {"speedup", number_or_null(one.speedup)},
          {"beyond", number_or_null(one.beyond)},
          {"peak_bytes", one.peak_bytes},
          {"wire_bytes", one.wire_bytes}};
}

}  // namespace

TensorResult bench_tensor(const TensorBench& bench) {
  TensorResult result;
  for (const int64_t batch : bench.batches) compare(bench, batch, result);
  return result;
}

settings::Schema tensor_schema() { return tensor_settings(); }

int run_tensor(const Arguments& arguments) {
  settings::Settings settings{settings::Schema(tensor_settings())};
  settings.apply({arguments.words.begin() + 1, arguments.words.end()});
  check_names(settings, "modes", kTensorModes);
  check_names(settings, "peers", kTensorPeers);
  const auto result = bench_tensor(read_tensor_bench(settings));
  const auto missing = result.is_peer_missing ? kTensorPeers : Words();
  Table table({"ranks", "batch", "ms", "computing", "peer's ms", "computing", "times as fast", "beyond computing",
               "peak of a rank", "wire of a step"});
  auto list = nlohmann::json::array();
  for (const auto& one : result.cases) {
    table.add_row({std::to_string(settings.get_int("ranks")) + " " + one.mode, std::to_string(one.batch),
                   in_milliseconds(one.seconds), in_milliseconds(one.compute_seconds),
                   in_milliseconds(one.peer_seconds), in_milliseconds(one.peer_compute_seconds),
                   format_number("%.2f", one.speedup), format_number("%.2f", one.beyond), format_bytes(one.peak_bytes),
                   format_bytes(one.wire_bytes)});
    list.push_back(json_of(one));
  }
  write_result(arguments, table.str(), {{"cases", list}, {"missing", missing}});
  check_peers(missing, settings.given("peers"));
  return 0;
}

}  // namespace tandem::cli
