#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/table.h"
#include "tandem/cli/bench/parity.h"
#include "tandem/cli/command.h"
#include "tandem/cli/result.h"
#include "tandem/settings/settings.h"
#include "tandem/storage/named_file.h"

namespace tandem::cli {
namespace {

const std::vector<settings::Setting>& parity_settings() {
  static const std::vector<settings::Setting> settings = {
      {"ranks", int64_t{5}, "compare 1 to this many ranks", {1, 64}},
      {"batch", int64_t{23}, "batch size over all ranks", {1, 1e6}},
      {"steps", int64_t{10}, "training steps", {1, 1000}},
      {.key = "accumulate",
       .default_value = std::vector<double>{1, 3},
       .doc = "numbers of micro-batches",
       .range = {1, 1e6}},
      {"page", std::string(), "write the table as a page of Markdown to this file"},
  };
  return settings;
}

ParityBench read_bench(const settings::Settings& settings) {
  ParityBench bench;
  bench.most_ranks = static_cast<int>(settings.get_int("ranks"));
  bench.batch = settings.get_int("batch");
  bench.steps = settings.get_int("steps");
  bench.accumulate.clear();
  if (settings.get_numbers("accumulate").empty()) {
    throw SettingsError("accumulate is empty, wanted one number of micro-batches or more");
  }
  for (const double parts : settings.get_numbers("accumulate")) bench.accumulate.push_back(std::llround(parts));
  return bench;
}

std::string power_text(double difference) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", difference);
  return difference == 0 ? "0" : text;
}

std::string plan_of(const ParityCase& one) {
  auto plan = one.parallel;
  for (const auto& word : one.more) plan += " " + word;
  return plan;
}

std::vector<std::string> cells_of(const ParityCase& one) {
  return {plan_of(one),
          std::to_string(one.ranks),
          std::to_string(one.accumulate),
          one.recompute,
          power_text(one.difference.loss),
          power_text(one.difference.gradient),
          power_text(one.difference.weight)};
}

/// The numbers on one device.
std::string scale_text(const ParityResult& result) {
  char text[160];
  std::snprintf(text, sizeof text,
                "largest loss %.2f, gradient %.1e and weight %.2f; training moves weights by up to %.1e",
                result.largest.loss, result.largest.gradient, result.largest.weight, result.moved);
  return text;
}

/// The greatest differences of each plan, in the order in which they ran.
std::vector<ParityCase> worst_of(const std::vector<ParityCase>& cases) {
  std::vector<ParityCase> worst;
  for (const auto& one : cases) {
    if (worst.empty() || plan_of(worst.back()) != plan_of(one)) worst.push_back(one);
    auto& most = worst.back().difference;
    for (const auto member : {&ParityNumbers::loss, &ParityNumbers::gradient, &ParityNumbers::weight}) {
      most.*member = std::max(most.*member, one.difference.*member);
    }
  }
  return worst;
}

std::string page_of(const ParityBench& bench, const ParityResult& result) {
  std::string page =
      "# Parity: every plan against one device\n\n"
      "`tandem bench parity page=docs/parity.md` writes this page, and prints a line for each of its " +
      std::to_string(result.cases.size()) + " cases: 1 to " + std::to_string(bench.most_ranks) +
      "\nranks, whole batches and micro-batches, without and with recomputation. Each plan trains the same small job "
      "(an MLP in\nfloat64 without batch statistics, 11 classes split over the ranks, batches of " +
      std::to_string(bench.batch) +
      " images), and so does a plain loop on one\ndevice: autograd of the whole batch, cross entropy of whole logits, "
      "SGD with momentum. `local-sgd` and `diloco` meet in\nevery step, the latter with outer steps of length 1 and no "
      "outer momentum: their steps are then those of the whole batch. With\n`model=none` the job is a head on the "
      "pixels. Ranks along `tensor` have the same images and parts of the layers\n([mesh](mesh.md)); vit_tiny and "
      "resnet18 train " +
      std::to_string(kParitySlowSteps) +
      " steps, and plans of three axes run on 8 ranks. Ranks along `pipeline` have\nstages of the model "
      "([pipeline](pipeline.md)). With `model=search:s2` the job is a\n[search](search.md) of "
      "second order, of " +
      std::to_string(kParitySlowSteps) +
      " steps; on one device two backward passes make the product of second derivatives.\nIts alphas are compared "
      "among the weights.\n\n"
      "The numbers are the greatest absolute differences from one device, over all cases of a plan and over all "
      "ranks: of the\nlosses of " +
      std::to_string(bench.steps) +
      " steps, of the gradients of the first step, and of the weights after the last. Only the order of sums\ndiffers, "
      "so they are a few units of float64's last place. On one device:\n" +
      scale_text(result) + ".\n\n" + "| Plan | Losses | Gradients | Weights |\n|---|---|---|---|\n";
  for (const auto& one : worst_of(result.cases)) {
    page += "| " + plan_of(one) + " | " + power_text(one.difference.loss) + " | " +
            power_text(one.difference.gradient) + " | " + power_text(one.difference.weight) + " |\n";
  }
  return page;
}

nlohmann::json json_of(const ParityNumbers& numbers) {
  return {{"loss", numbers.loss}, {"gradient", numbers.gradient}, {"weight", numbers.weight}};
}

nlohmann::json json_of(const ParityResult& result) {
  auto list = nlohmann::json::array();
  for (const auto& one : result.cases) {
    list.push_back({{"parallel", one.parallel},
                    {"more", one.more},
                    {"ranks", one.ranks},
                    {"accumulate", one.accumulate},
                    {"recompute", one.recompute},
                    {"difference", json_of(one.difference)},
                    {"parts", one.parts}});
  }
  return {{"cases", list}, {"largest", json_of(result.largest)}, {"moved", result.moved}};
}

}  // namespace

settings::Schema parity_schema() { return parity_settings(); }

int run_parity(const Arguments& arguments) {
  settings::Settings settings{settings::Schema(parity_settings())};
  settings.apply({arguments.words.begin() + 1, arguments.words.end()});
  const auto bench = read_bench(settings);
  const std::filesystem::path page = settings.get_string("page");
  if (!page.empty()) storage::check_named_file("page", page);
  const auto result = bench_parity(bench);
  Table table({"parallel", "ranks", "micro-batches", "recompute", "losses", "gradients", "weights"});
  for (const auto& one : result.cases) table.add_row(cells_of(one));
  auto text = "greatest differences from one device: " + scale_text(result) + "\n" + table.str();
  for (const auto& one : result.cases) {
    if (one.parts.empty()) continue;
    text += "\n" + plan_of(one) + " on " + std::to_string(one.ranks) + " ranks parts from one device at " + one.parts;
  }
  write_result(arguments, text, json_of(result));
  if (!page.empty()) storage::write_named_file("page", page, page_of(bench, result));
  return 0;
}

}  // namespace tandem::cli
