#include "tandem/cli/bench/ddp.h"

#include <algorithm>
#include <array>
#include <memory>

#include "tandem/base/log.h"
#include "tandem/base/median.h"
#include "tandem/cli/bench/own_side.h"
#include "tandem/cli/bench/peer.h"
#include "tandem/cli/bench/rounds.h"
#include "tandem/parallel/strategy.h"

namespace tandem::cli {
namespace {

using Words = std::vector<std::string>;

struct Rival {
  std::string_view name;
  bool has_peer = true;  // in bench/ddp/peers.py
};
constexpr std::array<Rival, 8> kRivals = {
    {{"ddp"}, {"zero1"}, {"zero2"}, {"fsdp"}, {"dp"}, {"ps", false}, {"local-sgd", false}, {"diloco", false}}};

struct Model {
  std::string_view name;
  int64_t channels, size;  // of the images of both sides
};
constexpr std::array<Model, 2> kModels = {{{"resnet18", 3, 64}, {"resnet_glyph", 3, 32}}};

Words own_words(const DdpBench& bench, const Model& model, const std::string& parallel) {
  Words settings = {"head=softmax",
                    "head.parallel=replicated",
                    "parallel=" + parallel,
                    "model=" + std::string(model.name),
                    "data.size=" + std::to_string(model.size),
                    "head.classes=" + std::to_string(bench.classes),
                    "train.batch=" + std::to_string(bench.batch)};
  settings.insert(settings.end(), bench.settings.begin(), bench.settings.end());
  return step_command(settings);
}

/// Ours. The peer's model has its classifier on every rank, and so has ours.
Words own_command(const DdpBench& bench, const Rival& rival, const Model& model, const std::string& mode) {
  auto command = own_words(bench, model, std::string(rival.name));
  if (mode == "processes") return launched(bench.ranks, command);
  command.push_back("ranks=" + std::to_string(bench.ranks));
  return command;
}

/// Ours on one rank, which has all threads.
Words whole_command(const DdpBench& bench, const Model& model) {
  return own_words(bench, model, std::string(parallel::strategies().front().name));
}

/// Nullopt if the script is gone.
std::optional<Words> peer_words(const DdpBench& bench, const Rival& rival, const Model& model) {
  auto command = peer_command("ddp");
  if (!command) return std::nullopt;
  for (const auto& word :
       Words{std::string(rival.name), std::string(model.name), std::to_string(bench.batch),
             std::to_string(model.channels), std::to_string(model.size), std::to_string(bench.classes)}) {
    command->push_back(word);
  }
  return launched(parallel::strategy_of(rival.name).is_one_process ? 1 : bench.ranks, *command);
}

/// Ranks of one process are no processes.
bool has_mode(const Rival& rival, const std::string& mode) {
  return mode == "threads" || !parallel::strategy_of(rival.name).is_one_process;
}

/// Ours in each mode and on one rank, and the peer, in turn.
void compare(const DdpBench& bench, const Rival& rival, const Model& model, DdpResult& result) {
  const auto what = std::string(rival.name) + " of " + std::string(model.name);
  std::vector<std::unique_ptr<OwnSide>> own;
  Words modes;
  for (const auto& mode : bench.modes) {
    if (!has_mode(rival, mode)) continue;
    modes.push_back(mode);
    own.push_back(std::make_unique<OwnSide>(what + ", " + mode, own_command(bench, rival, model, mode)));
  }
  OwnSide whole(what + ", one rank", whole_command(bench, model));
  std::optional<Peer> peer;
  std::vector<double> peer_rounds;
  if (bench.with_peers && rival.has_peer) peer.emplace("torch, " + what, peer_words(bench, rival, model));
  for (int64_t round = 0; round < bench.rounds; ++round) {
    log::info(what + ": round " + std::to_string(round + 1) + " of " + std::to_string(bench.rounds));
    for (const auto& side : own) side->take(bench.steps);
    whole.take(bench.steps);
    if (!peer) continue;
    if (const auto steps = peer->ask(std::to_string(bench.steps), static_cast<size_t>(bench.steps))) {
      peer_rounds.push_back(median(*steps));
    }
  }
  const bool is_compared = peer && !peer->is_missing();
  result.is_peer_missing |= peer && !is_compared;
  for (size_t i = 0; i < own.size(); ++i) {
    result.cases.push_back({.name = std::string(rival.name),
                            .model = std::string(model.name),
                            .mode = modes[i],
                            .ranks = bench.ranks,
                            .seconds = median(own[i]->rounds()),
                            .one_rank_seconds = median(whole.rounds()),
                            .one_rank_ratio = ratio_of_rounds(whole.rounds(), own[i]->rounds()),
                            .peak_bytes = own[i]->facts().at("peak_bytes").get<int64_t>(),
                            .wire_bytes = own[i]->facts().at("wire_bytes").get<int64_t>()});
    if (!is_compared) continue;
    result.cases.back().peer_seconds = median(peer_rounds);
    result.cases.back().speedup = ratio_of_rounds(peer_rounds, own[i]->rounds());
  }
}

template <class Table>
Words names_in(const Table& table) {
  Words names;
  for (const auto& row : table) names.emplace_back(row.name);
  return names;
}

}  // namespace

std::vector<std::string> ddp_names() { return names_in(kRivals); }
std::vector<std::string> ddp_models() { return names_in(kModels); }

DdpResult bench_ddp(const DdpBench& bench) {
  DdpResult result;
  for (const auto& name : bench.names) {
    for (const auto& model : bench.models) {
      compare(bench, *std::ranges::find(kRivals, name, &Rival::name), *std::ranges::find(kModels, model, &Model::name),
              result);
    }
  }
  return result;
}

}  // namespace tandem::cli
