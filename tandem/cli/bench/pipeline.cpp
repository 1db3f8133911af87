#include "tandem/cli/bench/pipeline.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/log.h"
#include "tandem/base/median.h"
#include "tandem/base/table.h"
#include "tandem/cli/bench/delayed_stages.h"
#include "tandem/cli/bench/own_side.h"
#include "tandem/cli/bench/peer.h"
#include "tandem/cli/bench/rounds.h"
#include "tandem/cli/result.h"
#include "tandem/pipeline/schedule.h"
#include "tandem/settings/settings.h"

namespace tandem::cli {
namespace {

using pipeline::StageCost;
using Words = std::vector<std::string>;

constexpr int64_t kColours = 3, kBlocks = 12;
const Words kPipelinePeers = {"torch"};
const Words kPipelineModes = {"threads", "processes", "delays"};
const Words kComparedSchedules = {"gpipe", "1f1b", "interleaved"};  // that the peer has too

pipeline::ScheduleSize size_of(const PipelineBench& bench) {
  return {.ranks = bench.ranks, .micro_batches = bench.micro_batches};
}

pipeline::Program program_of(const PipelineBench& bench, const std::string& schedule) {
  return make_program(pipeline::schedule_of(schedule), size_of(bench));
}

/// Each stage has as many blocks, as the peer's.
std::string even_cut(int stages) {
  std::string cut;
  for (int stage = 1; stage < stages; ++stage) {
    cut += (stage > 1 ? ",blocks." : "blocks.") + std::to_string(stage * kBlocks / stages);
  }
  return cut;
}

Words own_words(const PipelineBench& bench, const std::string& schedule) {
  const auto stages = pipeline::schedule_of(schedule).chunks_of(size_of(bench)) * bench.ranks;
  Words settings = {"model=vit_tiny",
                    "model.patch=" + std::to_string(bench.patch),
                    "model.heads=" + std::to_string(bench.heads),
                    "embedding=0",
                    "head=softmax",
                    "head.parallel=replicated",
                    "parallel=pipeline",
                    "pipeline.schedule=" + schedule,
                    "pipeline.cut=" + even_cut(stages),
                    "train.accumulate=" + std::to_string(bench.micro_batches),
                    "train.optimizer=adamw",
                    "train.clip=0",
                    "threads=1",
                    "data.size=" + std::to_string(bench.size),
                    "head.classes=" + std::to_string(bench.classes),
                    "train.batch=" + std::to_string(bench.batch)};
  settings.insert(settings.end(), bench.settings.begin(), bench.settings.end());
  return settings;
}

Words own_command(const PipelineBench& bench, const std::string& schedule, const std::string& mode) {
  auto command = step_command(own_words(bench, schedule));
  if (mode == "processes") return launched(bench.ranks, command);
  command.push_back("ranks=" + std::to_string(bench.ranks));
  return command;
}

/// With `sends` it takes steps; else it measures its stages, in the order of the program. Nullopt if the script is
/// gone.
std::optional<Words> peer_words(const PipelineBench& bench, const std::string& schedule, bool sends) {
  auto command = peer_command("pipeline");
  if (!command) return std::nullopt;
  command->push_back(schedule);
  for (const int64_t number :
       {int64_t{bench.micro_batches}, bench.batch, kColours, bench.size, bench.patch, bench.heads, bench.classes}) {
    command->push_back(std::to_string(number));
  }
  if (!sends) command->insert(command->end(), {"alone", text_of(program_of(bench, schedule))});
  return launched(bench.ranks, *command);
}

/// A step as it would be if messages took no time.
struct Simulated {
  double seconds = 0, bubble = 0;
};

Simulated simulated(const PipelineBench& bench, const std::string& schedule, const std::vector<StageCost>& costs,
                    double update) {
  const auto simulation = simulate(program_of(bench, schedule), costs);
  return {simulation.makespan + update, simulation.bubble};
}

Simulated simulated(const PipelineBench& bench, const std::string& schedule, const nlohmann::json& costs) {
  std::vector<StageCost> all;
  for (const auto& stage : costs["stages"]) {
    all.push_back({stage["forward"], stage["input_gradient"], stage["weight_gradient"]});
  }
  return simulated(bench, schedule, all, costs["update"]);
}

/// Of torch: the peer's numbers are F0 B0 F1 B1 ... U.
Simulated simulated(const PipelineBench& bench, const std::string& schedule, const std::vector<double>& numbers) {
  std::vector<StageCost> all;
  for (size_t i = 0; i + 1 < numbers.size(); i += 2) all.push_back({numbers[i], numbers[i + 1], 0});
  return simulated(bench, schedule, all, numbers.back());
}

/// A schedule of ours in one mode, round by round.
struct OwnRounds {
  OwnRounds(const PipelineBench& bench, const std::string& schedule, const std::string& of_mode)
      : mode(of_mode), side(schedule + ", " + of_mode, own_command(bench, schedule, of_mode)) {}

  std::string mode;
  OwnSide side;
  std::vector<Simulated> simulations;
};

/// The peer's steps, and what its stages take. It may be missing.
class PipelinePeer {
 public:
  PipelinePeer(const PipelineBench& bench, const std::string& schedule)
      : bench_(bench),
        schedule_(schedule),
        steps_("torch, " + schedule, peer_words(bench, schedule, true)),
        alone_("torch, " + schedule + ", computing alone", peer_words(bench, schedule, false)) {}

  void take() {
    const auto count = static_cast<size_t>(bench_.steps);
    const auto chunks = pipeline::schedule_of(schedule_).chunks_of(size_of(bench_));
    const auto seconds = steps_.ask(std::to_string(bench_.steps), count);
    const auto costs = alone_.ask("1", static_cast<size_t>(2 * chunks * bench_.ranks + 1));
    if (!seconds || !costs) return;
    rounds.push_back(median(*seconds));
    simulations.push_back(simulated(bench_, schedule_, *costs).seconds);
  }
  bool is_missing() const { return steps_.is_missing() || alone_.is_missing(); }

  std::vector<double> rounds, simulations;

 private:
  const PipelineBench& bench_;
  std::string schedule_;
  Peer steps_, alone_;
};

PipelineCase case_of(const PipelineBench& bench, const std::string& schedule, const OwnRounds& own,
                     const PipelinePeer* peer) {
  Rounds simulations, bubbles;
  for (const auto& one : own.simulations) simulations.push_back(one.seconds), bubbles.push_back(one.bubble);
  const auto& rounds = own.side.rounds();
  PipelineCase result{.schedule = schedule,
                      .mode = own.mode,
                      .ranks = bench.ranks,
                      .micro_batches = bench.micro_batches,
                      .seconds = median(rounds),
                      .simulated_seconds = median(simulations),
                      .bubble = median(bubbles),
                      .peak_bytes = own.side.facts().at("peak_bytes").get<int64_t>(),
                      .wire_bytes = own.side.facts().at("wire_bytes").get<int64_t>()};
  if (peer == nullptr) return result;
  result.peer_seconds = median(peer->rounds);
  result.peer_simulated_seconds = median(peer->simulations);
  result.speedup = ratio_of_rounds(peer->rounds, rounds);
  const double ours = median(difference_of_rounds(rounds, simulations));
  if (ours > 0) result.beyond = ours / median(difference_of_rounds(peer->rounds, peer->simulations));
  return result;
}

void compare(const PipelineBench& bench, const std::string& schedule, PipelineResult& result) {
  std::vector<std::unique_ptr<OwnRounds>> own;
  for (const auto& mode : bench.modes) {
    if (mode != "delays") own.push_back(std::make_unique<OwnRounds>(bench, schedule, mode));
  }
  if (own.empty()) return;
  std::optional<PipelinePeer> peer;
  if (bench.with_peers) peer.emplace(bench, schedule);
  for (int64_t round = 0; round < bench.rounds; ++round) {
    log::info(schedule + ": round " + std::to_string(round + 1) + " of " + std::to_string(bench.rounds));
    for (const auto& one : own) {
      one->side.take(bench.steps);
      one->simulations.push_back(simulated(bench, schedule, one->side.costs()));
    }
    if (peer) peer->take();
  }
  const bool is_compared = peer && !peer->is_missing();
  result.is_peer_missing |= peer && !is_compared;
  for (const auto& one : own) result.cases.push_back(case_of(bench, schedule, *one, is_compared ? &*peer : nullptr));
}

/// Every schedule there is, with stages that sleep.
void delay(const PipelineBench& bench, PipelineResult& result) {
  for (const auto& schedule : pipeline::schedules()) {
    log::info(std::string(schedule.name) + ", delays");
    const auto program = make_program(schedule, {.ranks = bench.delayed_ranks, .micro_batches = bench.micro_batches});
    const auto costs = even_costs(program, {bench.unit, bench.unit, bench.unit});
    const auto simulation = simulate(program, costs);
    result.cases.push_back({.schedule = std::string(schedule.name),
                            .mode = "delays",
                            .ranks = bench.delayed_ranks,
                            .micro_batches = bench.micro_batches,
                            .seconds = run_delayed(program, costs),
                            .simulated_seconds = simulation.makespan,
                            .bubble = simulation.bubble});
  }
}

const std::vector<settings::Setting>& pipeline_settings() {
  static const std::vector<settings::Setting> settings = {
      {.key = "modes",
       .default_value = kPipelineModes,
       .doc = "how our ranks run: as threads of one process, as processes; delays: as threads whose stages sleep, with "
              "every schedule"},
      {.key = "schedules",
       .default_value = kComparedSchedules,
       .doc = "schedules of the model that is trained, a case each"},
      {.key = "peers", .default_value = kPipelinePeers, .doc = "peers to compare with; empty: none"},
      {"ranks", int64_t{2}, "ranks of each side, of one thread each", {1, 6}},
      {"micro_batches", int64_t{8}, "micro-batches of a step", {1, 1024}},
      {"batch", int64_t{64}, "images of a step, a multiple of the micro-batches", {1, 1e6}},
      {"size", int64_t{64}, "pixels a side of the images", {1, 4096}},
      {"patch", int64_t{8}, "pixels a side that make a token", {1, 1024}},
      {"heads", int64_t{4}, "heads of the attention", {1, 192}},
      {"classes", int64_t{100}, "classes of the classifier", {1, 1e9}},
      {"rounds", int64_t{5}, "rounds, in which the sides take their steps in turn", {1, 1000}},
      {"steps", int64_t{3}, "steps of each side in a round, of which the median counts", {1, 1000}},
      {"delayed_ranks", int64_t{4}, "ranks of the mode delays", {1, 64}},
      {"unit",
       20.0,
       "milliseconds that a rank of the mode delays takes for forward, and for each half of backward",
       {0.001, 1e5}},
      {"settings", std::vector<std::string>(), "more settings of our side, such as comm.transport=sockets"},
  };
  return settings;
}

PipelineBench read_pipeline_bench(const settings::Settings& settings) {
  PipelineBench bench = {.modes = settings.get_list("modes"),
                         .schedules = settings.get_list("schedules"),
                         .with_peers = !settings.get_list("peers").empty(),
                         .ranks = static_cast<int>(settings.get_int("ranks")),
                         .micro_batches = static_cast<int>(settings.get_int("micro_batches")),
                         .batch = settings.get_int("batch"),
                         .size = settings.get_int("size"),
                         .patch = settings.get_int("patch"),
                         .heads = settings.get_int("heads"),
                         .classes = settings.get_int("classes"),
                         .rounds = settings.get_int("rounds"),
                         .steps = settings.get_int("steps"),
                         .delayed_ranks = static_cast<int>(settings.get_int("delayed_ranks")),
                         .unit = settings.get_float("unit") * 1e-3,
                         .settings = settings.get_list("settings")};
  for (const auto& schedule : bench.schedules) {
    const int64_t stages = pipeline::schedule_of(schedule).chunks_of(size_of(bench)) * bench.ranks;
    if (kBlocks % stages == 0) continue;
    throw SettingsError("ranks is " + std::to_string(bench.ranks) + " with schedule " + schedule + ", whose " +
                        std::to_string(stages) + " stages do not divide the " + std::to_string(kBlocks) +
                        " blocks, wanted 2 or 3");
  }
  if (bench.batch % bench.micro_batches != 0) {
    throw SettingsError("batch is " + std::to_string(bench.batch) + " with micro_batches " +
                        std::to_string(bench.micro_batches) + ", wanted a multiple of them");
  }
  return bench;
}

nlohmann::json json_of(const PipelineCase& one) {
  return {{"schedule", one.schedule},
          {"ranks", one.ranks},
          {"mode", one.mode},
          {"micro_batches", one.micro_batches},
          {"seconds", one.seconds},
          {"simulated_seconds", one.simulated_seconds},
          {"bubble", one.bubble},
          {"peer_seconds", number_or_null(one.peer_seconds)},
          {"peer_simulated_seconds", number_or_null(one.peer_simulated_seconds)},
          {"speedup", number_or_null(one.speedup)},
          {"beyond", number_or_null(one.beyond)},
          {"peak_bytes", one.peak_bytes},
          {"wire_bytes", one.wire_bytes}};
}

}  // namespace

PipelineResult bench_pipeline(const PipelineBench& bench) {
  PipelineResult result;
  for (const auto& schedule : bench.schedules) compare(bench, schedule, result);
  if (std::ranges::find(bench.modes, "delays") != bench.modes.end()) delay(bench, result);
  return result;
}

settings::Schema pipeline_schema() { return pipeline_settings(); }

int run_pipeline(const Arguments& arguments) {
  settings::Settings settings{settings::Schema(pipeline_settings())};
  settings.apply({arguments.words.begin() + 1, arguments.words.end()});
  check_names(settings, "modes", kPipelineModes);
  check_names(settings, "schedules", kComparedSchedules);
  check_names(settings, "peers", kPipelinePeers);
  const auto result = bench_pipeline(read_pipeline_bench(settings));
  const auto missing = result.is_peer_missing ? kPipelinePeers : Words();
  Table table({"schedule", "ranks", "ms", "simulated", "of simulated", "bubble", "peer's ms", "simulated",
               "times as fast", "beyond simulated", "peak of a rank"});
  auto list = nlohmann::json::array();
  for (const auto& one : result.cases) {
    table.add_row({one.schedule, std::to_string(one.ranks) + " " + one.mode, in_milliseconds(one.seconds),
                   in_milliseconds(one.simulated_seconds), format_number("%.3f", one.seconds / one.simulated_seconds),
                   format_number("%.1f %%", one.bubble * 100), in_milliseconds(one.peer_seconds),
                   in_milliseconds(one.peer_simulated_seconds), format_number("%.2f", one.speedup),
                   format_number("%.2f", one.beyond), one.peak_bytes > 0 ? format_bytes(one.peak_bytes) : ""});
    list.push_back(json_of(one));
  }
  write_result(arguments, table.str(), {{"cases", list}, {"missing", missing}});
  check_peers(missing, settings.given("peers"));
  return 0;
}

}  // namespace tandem::cli
