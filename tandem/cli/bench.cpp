#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/quote.h"
#include "tandem/base/suggest.h"
#include "tandem/base/table.h"
#include "tandem/cli/bench/activation.h"
#include "tandem/cli/bench/classifier.h"
#include "tandem/cli/bench/comm.h"
#include "tandem/cli/bench/ddp.h"
#include "tandem/cli/bench/memory.h"
#include "tandem/cli/bench/parity.h"
#include "tandem/cli/bench/peer.h"
#include "tandem/cli/bench/pipeline.h"
#include "tandem/cli/bench/plans.h"
#include "tandem/cli/bench/recompute.h"
#include "tandem/cli/bench/search.h"
#include "tandem/cli/bench/step.h"
#include "tandem/cli/bench/tensor.h"
#include "tandem/cli/command.h"
#include "tandem/cli/result.h"
#include "tandem/job/job.h"
#include "tandem/settings/settings.h"
#include "tandem/settings/value.h"

namespace tandem::cli {
namespace {

const std::vector<settings::Setting>& comm_settings() {
  static const std::vector<settings::Setting> settings = {
      {.key = "ranks", .default_value = int64_t{4}, .doc = "number of thread-ranks", .range = {2, 64}},
      {.key = "bytes",
       .default_value = std::vector<double>{1024, 16384, 262144, 4194304, 67108864},
       .doc = "sizes of the whole tensor in bytes",
       .range = {4, 1e10}},
      {.key = "operations", .default_value = std::vector<std::string>(), .doc = "operations to measure; empty: all"},
      {.key = "seconds", .default_value = 0.6, .doc = "seconds per case", .range = {0.01, 3600}},
      {.key = "quick", .default_value = false, .doc = "fewer sizes and less time for each: under 40 s in all"},
  };
  return settings;
}

CommBench read_comm_bench(const std::vector<std::string>& words) {
  settings::Settings settings{settings::Schema(comm_settings())};
  settings.apply(words);
  if (settings.get_bool("quick")) {
    if (!settings.given("bytes")) settings.set("bytes", "1024,65536,4194304");
    if (!settings.given("seconds")) settings.set("seconds", "0.3");
  }
  CommBench bench;
  bench.ranks = static_cast<int>(settings.get_int("ranks"));
  bench.seconds_a_case = settings.get_float("seconds");
  bench.operations = settings.get_list("operations");
  const auto known = bench_operations();
  const std::vector<std::string_view> views(known.begin(), known.end());
  for (const auto& name : bench.operations) {
    if (std::ranges::find(known, name) != known.end()) continue;
    throw SettingsError("operations names '" + name + "', wanted " + one_of(known), did_you_mean(nearest(name, views)));
  }
  const int64_t unit = 4 * bench.ranks;
  for (const double bytes : settings.get_numbers("bytes")) {
    bench.sizes.push_back(std::max<int64_t>(1, std::llround(bytes) / unit) * unit);  // whole parts for every rank
  }
  return bench;
}

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, seconds < 1e-3 ? "%.4f" : "%.2f", seconds * 1e3);
  return text;
}

std::string times(double factor) {
  char text[32];
  std::snprintf(text, sizeof text, factor < 10 ? "%.2f" : "%.1f", factor);
  return text;
}

double geometric_mean_speedup(const std::vector<BenchCase>& cases) {
  double sum = 0;
  for (const auto& one : cases) sum += std::log(one.gloo_seconds / one.seconds);
  return cases.empty() ? 0 : std::exp(sum / static_cast<double>(cases.size()));
}

std::string table_of(const std::string& title, const std::vector<BenchCase>& cases) {
  if (cases.empty()) return "";
  Table table({title, "bytes", "ms", "Gloo ms", "times as fast", "copy ms", "of a copy"});
  for (const auto& one : cases) {
    const bool has_floor = one.floor_seconds > 1e-6;
    table.add_row({one.operation, format_bytes(one.bytes), milliseconds(one.seconds), milliseconds(one.gloo_seconds),
                   times(one.gloo_seconds / one.seconds), has_floor ? milliseconds(one.floor_seconds) : "–",
                   has_floor ? times(one.seconds / one.floor_seconds) : "–"});
  }
  return table.str();
}

nlohmann::json list_of(const std::vector<BenchCase>& cases) {
  auto list = nlohmann::json::array();
  for (const auto& one : cases) {
    list.push_back({{"operation", one.operation},
                    {"ranks", one.ranks},
                    {"bytes", one.bytes},
                    {"seconds", one.seconds},
                    {"gloo_seconds", one.gloo_seconds},
                    {"floor_seconds", one.floor_seconds}});
  }
  return list;
}

int run_comm(const Arguments& arguments) {
  const auto result = bench_comm(read_comm_bench({arguments.words.begin() + 1, arguments.words.end()}));
  const double geomean = geometric_mean_speedup(result.cases);
  const auto with_mean = [](const std::string& title, const std::vector<BenchCase>& cases) {
    if (cases.empty()) return std::string();
    return table_of(title, cases) + "geometric mean: " + times(geometric_mean_speedup(cases)) +
           " times as fast as Gloo\n";
  };
  write_result(arguments,
               with_mean("threads", result.cases) + with_mean("segments", result.over_segments) +
                   table_of("over Gloo", result.over_gloo),
               {{"cases", list_of(result.cases)},
                {"over_segments", list_of(result.over_segments)},
                {"over_gloo", list_of(result.over_gloo)},
                {"geomean_speedup", geomean}});
  return 0;
}

const std::vector<settings::Setting>& classifier_settings() {
  static const std::vector<settings::Setting> settings = {
      {"classes", int64_t{0}, "number of classes; 0: the two standard cases, 100,000 and 1,000,000", {0, 1e12}},
      {"dim", int64_t{512}, "size of a feature vector", {1, 65536}},
      {"batch", int64_t{0}, "batch size over all ranks; 0: 256, or 64 from 500,000 classes on", {0, 1e9}},
      {"ranks", int64_t{1}, "thread-ranks of Tandem, and processes of a sharded peer", {1, 64}},
      {.key = "form",
       .default_value = std::string("fused"),
       .doc = "fused: update inside backward; sharded: gradient first, then update",
       .choices = {"fused", "sharded"}},
      {"bf16", false, "products in bfloat16"},
      {"block", int64_t{0}, "classes per block; 0: as many as fit in a core's cache", {0, 1e9}},
      {.key = "keep_bytes",
       .default_value = std::string("128M"),
       .doc = "bytes of scores kept for backward",
       .other = settings::kSizes},
      {"peers", classifier_peers(), "peers to compare with; empty: none"},
      {"rounds", int64_t{5}, "steps measured beside each peer", {1, 1000}},
  };
  return settings;
}

std::vector<ClassifierBench> read_classifier_benches(const settings::Settings& settings) {
  const auto known = classifier_peers();
  for (const auto& name : settings.get_list("peers")) {
    if (std::ranges::find(known, name) != known.end()) continue;
    throw SettingsError("peers names '" + name + "', wanted " + one_of(known));
  }
  std::vector<ClassifierBench> benches;
  const auto classes = settings.get_int("classes");
  for (const auto count : classes > 0 ? std::vector<int64_t>{classes} : std::vector<int64_t>{100'000, 1'000'000}) {
    ClassifierBench bench;
    bench.classes = count;
    bench.dim = settings.get_int("dim");
    bench.batch = settings.get_int("batch") > 0 ? settings.get_int("batch") : count < 500'000 ? 256 : 64;
    bench.ranks = static_cast<int>(settings.get_int("ranks"));
    bench.form = settings.get_string("form");
    bench.bf16 = settings.get_bool("bf16");
    bench.block = settings.get_int("block");
    bench.keep_bytes = parse_bytes(settings.get_string("keep_bytes")).value();
    bench.peers = settings.get_list("peers");
    bench.rounds = static_cast<int>(settings.get_int("rounds"));
    benches.push_back(bench);
  }
  return benches;
}

nlohmann::json json_of(const ClassifierResult& result) {
  const auto& bench = result.bench;
  nlohmann::json json = {{"classes", bench.classes},
                         {"dim", bench.dim},
                         {"batch", bench.batch},
                         {"ranks", bench.ranks},
                         {"form", bench.form},
                         {"bf16", bench.bf16},
                         {"seconds", result.seconds},
                         {"extra_bytes", result.extra_bytes},
                         {"floor_seconds", result.floor_seconds},
                         {"missing", result.missing}};
  json["peers"] = nlohmann::json::array();
  for (const auto& peer : result.peers) {
    json["peers"].push_back(
        {{"name", peer.name}, {"seconds", peer.seconds}, {"extra_bytes", peer.extra_bytes}, {"speedup", peer.speedup}});
  }
  if (result.peers.empty()) return json;
  const auto& first = result.peers.front();  // naive, if it was asked for and is there
  json["speedup"] = first.speedup;
  json["bytes_ratio"] = static_cast<double>(result.extra_bytes) / static_cast<double>(first.extra_bytes);
  return json;
}

void add_rows(Table& table, const ClassifierResult& result) {
  const auto& bench = result.bench;
  const auto size = format_count(bench.classes) + " x " + std::to_string(bench.dim);
  table.add_row({size, std::to_string(bench.batch), "tandem, " + bench.form + (bench.bf16 ? ", bf16" : ""),
                 milliseconds(result.seconds), format_bytes(result.extra_bytes), "",
                 times(result.seconds / result.floor_seconds)});
  for (const auto& peer : result.peers) {
    table.add_row(
        {"", "", peer.name, milliseconds(peer.seconds), format_bytes(peer.extra_bytes), times(peer.speedup), ""});
  }
  for (const auto& name : result.missing) table.add_row({"", "", name, "missing", "–", "–", ""});
}

int run_classifier(const Arguments& arguments) {
  settings::Settings settings{settings::Schema(classifier_settings())};
  settings.apply({arguments.words.begin() + 1, arguments.words.end()});
  Table table({"classes", "batch", "who", "ms", "extra", "tandem is faster", "of its GEMMs"});
  auto cases = nlohmann::json::array();
  std::vector<std::string> missing;
  for (const auto& bench : read_classifier_benches(settings)) {
    const auto result = bench_classifier(bench);
    add_rows(table, result);
    cases.push_back(json_of(result));
    missing.insert(missing.end(), result.missing.begin(), result.missing.end());
  }
  write_result(arguments, table.str(), {{"cases", cases}});
  check_peers(missing, settings.given("peers"));
  return 0;
}

struct Bench {
  std::string_view name;
  int (*run)(const Arguments& arguments);
  settings::Schema (*schema)();
};

constexpr std::array<Bench, 12> kBenches = {
    {{"comm", run_comm, [] { return settings::Schema(comm_settings()); }},
     {"classifier", run_classifier, [] { return settings::Schema(classifier_settings()); }},
     {"activation", run_activation, activation_schema},
     {"memory", run_memory_bench, memory_bench_schema},
     {"recompute", run_recompute, recompute_schema},
     {"search", run_bench_search, bench_search_schema},
     {"parity", run_parity, parity_schema},
     {"ddp", run_ddp, ddp_schema},
     {"tensor", run_tensor, tensor_schema},
     {"pipeline", run_pipeline, pipeline_schema},
     {"plans", run_plans, plans_schema},
     {"step", run_step, job::schema}}};

std::vector<std::string> bench_names() {
  std::vector<std::string> names;
  for (const auto& known : kBenches) names.emplace_back(known.name);
  return names;
}

}  // namespace

std::optional<settings::Schema> bench_schema(std::string_view name) {
  const auto bench = std::ranges::find(kBenches, name, &Bench::name);
  return bench == kBenches.end() ? std::nullopt : std::optional(bench->schema());
}

int run_bench(const Arguments& arguments) {
  const auto& words = arguments.words;
  const auto bench = words.empty() ? kBenches.end() : std::ranges::find(kBenches, words[0], &Bench::name);
  if (bench == kBenches.end()) {
    throw UsageError((words.empty() ? "bench has no name" : "bench " + quote(words[0]) + " is unknown") +
                         std::string(", wanted ") + one_of(bench_names()),
                     "tandem bench comm quick=true");
  }
  return bench->run(arguments);
}

}  // namespace tandem::cli
