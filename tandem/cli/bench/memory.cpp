#include "tandem/cli/bench/memory.h"

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "tandem/base/format.h"
#include "tandem/base/log.h"
#include "tandem/base/table.h"
#include "tandem/cli/result.h"
#include "tandem/cli/run/step_memory.h"
#include "tandem/job/ranks.h"
#include "tandem/job/step_memory.h"
#include "tandem/memory/meter.h"

namespace tandem::cli {
namespace {

const std::vector<settings::Setting>& memory_bench_settings() {
  static const std::vector<settings::Setting> settings = {
      {"model", std::string("resnet50"), "the backbone"},
      {"batch", int64_t{32}, "images", {2, 1e6}},
      {"size", int64_t{224}, "height and width of an image", {8, 4096}},
      {"classes", int64_t{1000}, "number of classes", {1, 1e9}},
      {"threads", int64_t{1}, "threads of the rank; with one, the predicted bytes are exact", {1, 1024}},
  };
  return settings;
}

/// A way to save memory.
struct Way {
  const char* name;
  std::vector<std::string> words;

  /// Bytes of activations that it may take, given those of the fused form and of sqrt; null: as it comes.
  int64_t (*budget)(int64_t fused, int64_t sqrt) = nullptr;
};

constexpr const char *kFused = "swish, fused", *kSqrt = "fused, recompute sqrt";

const std::vector<Way>& ways() {
  static const std::string fused = "model.activation=swish-fused";
  static const std::vector<Way> all = {
      {"swish, naive", {"model.activation=swish-naive"}},
      {"swish, merged backward", {"model.activation=swish-merged"}},
      {"swish, ATen's silu", {"model.activation=silu"}},
      {kFused, {fused}},
      {"in-place norm and swish", {"model.norm=abn-swish"}},
      {"in-place norm and leaky ReLU", {"model.norm=abn-leaky"}},
      {kSqrt, {fused, "recompute=sqrt"}},
      {"fused, optimal in the bytes of sqrt", {fused, "recompute=optimal"}, [](int64_t, int64_t s) { return s; }},
      {"fused, optimal half way to none",
       {fused, "recompute=optimal"},
       [](int64_t f, int64_t s) { return (f + s) / 2; }},
  };
  return all;
}

job::Job job_of(const settings::Settings& bench, const std::vector<std::string>& words) {
  settings::Settings settings(job::schema());
  const auto number = [&](const char* key) { return std::to_string(bench.get_int(key)); };
  settings.apply(std::vector<std::string>{"data=synthetic", "model=" + bench.get_string("model"),
                                          "train.batch=" + number("batch"), "data.size=" + number("size"),
                                          "head.classes=" + number("classes"), "threads=" + number("threads")});
  settings.apply(words);
  return job::read_job(settings);
}

nlohmann::json measured(const job::Job& job) {
  nlohmann::json result;
  check_training(job);
  const auto shape = shape_of(job);
  on_ranks(job, [&](comm::ProcessGroup& group) { result = step_memory_json(measure_step(job, shape, group)); });
  result.erase("timeline");
  result.erase("blocks");
  return result;
}

std::vector<std::string> row_of(const nlohmann::json& one) {
  const auto bytes = [&](const char* key) { return format_bytes(one[key].get<int64_t>()); };
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.2f", one["seconds"].get<double>());
  const auto error = one["predicted_peak_bytes"].get<int64_t>() - one["peak_bytes"].get<int64_t>();
  return {one["name"], bytes("peak_bytes"), bytes("activations_peak_bytes"), bytes("saved_bytes"),
          seconds,     format_count(error)};
}

}  // namespace

settings::Schema memory_bench_schema() { return memory_bench_settings(); }

int run_memory_bench(const Arguments& arguments) {
  memory::install_meter();
  settings::Settings settings{settings::Schema(memory_bench_settings())};
  settings.apply({arguments.words.begin() + 1, arguments.words.end()});
  Table table({"activations", "peak", "activations at most", "saved by forward", "seconds", "predicted - peak"});
  auto cases = nlohmann::json::array();
  std::map<std::string, int64_t> activations;
  for (const auto& [name, words, budget] : ways()) {
    auto all = words;
    if (budget != nullptr) {
      all.push_back("memory.budget=" + std::to_string(budget(activations.at(kFused), activations.at(kSqrt))));
    }
    log::info(std::string("measures ") + name);
    auto one = measured(job_of(settings, all));
    activations[name] = one["activations_peak_bytes"];
    one["name"] = name;
    one["settings"] = all;
    table.add_row(row_of(one));
    cases.push_back(std::move(one));
  }
  write_result(arguments, table.str(), {{"cases", cases}});
  return 0;
}

}  // namespace tandem::cli
