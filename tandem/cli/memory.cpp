#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/log.h"
#include "tandem/base/table.h"
#include "tandem/cli/command.h"
#include "tandem/cli/result.h"
#include "tandem/cli/run/ranks.h"
#include "tandem/cli/run/step_memory.h"
#include "tandem/comm/agree.h"
#include "tandem/job/auto_plan.h"
#include "tandem/job/ranks.h"
#include "tandem/memory/device_memory.h"
#include "tandem/memory/meter.h"
#include "tandem/memory/table.h"
#include "tandem/report/report.h"
#include "tandem/storage/named_file.h"

namespace tandem::cli {
namespace {

constexpr const char* kDefaultClasses = "1000";

/// Train's settings, on random images of 1,000 classes unless the words say otherwise. Other data have their own.
settings::Settings memory_settings(const Arguments& arguments) {
  auto settings = read_settings(arguments);
  if (!settings.given("data")) settings.set("data", "synthetic");
  const bool is_random = settings.get_string("data") == "synthetic";
  if (is_random && !settings.given("head.classes")) settings.set("head.classes", kDefaultClasses);
  return settings;
}

CategoryBytes categories_of(const nlohmann::json& json) {
  CategoryBytes bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = json.at("categories").at(std::string(kCategoryNames[i]));
  return bytes;
}

std::string bytes_of(const nlohmann::json& json, const char* key) { return format_bytes(json.at(key).get<int64_t>()); }

std::string seconds_of(const nlohmann::json& json) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", json.at("seconds").get<double>());
  return text;
}

/// What it was that was measured: "resnet50, 32 images of 3 x 224 x 224, 1,000 classes".
std::string name_of(const job::Job& job, const job::DataShape& shape) {
  const auto& [channels, height, width] = shape.image;
  return job.model.name + ", " + format_count(job.training.batch) + " images of " + std::to_string(channels) + " x " +
         std::to_string(height) + " x " + std::to_string(width) + ", " + format_count(shape.classes) + " classes";
}

/// The rank that holds most stands for all.
nlohmann::json result_of(const job::StepMemory& own, const job::Job& job, const job::DataShape& shape,
                         comm::ProcessGroup& group) {
  auto ranks = nlohmann::json::array();
  const auto all = comm::gather_texts(step_memory_json(own).dump(), group);
  for (const auto& text : all) ranks.push_back(nlohmann::json::parse(text));
  const auto peak = [](const auto& rank) { return rank["peak_bytes"].template get<int64_t>(); };
  auto result = *std::ranges::max_element(ranks, {}, peak);
  for (auto& rank : ranks) rank.erase("timeline");
  result["ranks"] = ranks;
  result["name"] = name_of(job, shape);
  return result;
}

std::string text_of(const report::ReportTable& table) {
  Table text(table.head);
  for (const auto& row : table.rows) text.add_row(row);
  return table.caption + "\n" + text.str();
}

report::ReportTable table_of_blocks(const nlohmann::json& result) {
  report::ReportTable table{.caption = "Blocks of the rank that holds most, at its peak", .head = {"block"}};
  table.head.insert(table.head.end(), kCategoryNames.begin(), kCategoryNames.end());
  table.head.insert(table.head.end(), {"all", "saved"});
  for (const auto& block : result["blocks"]) {
    std::vector<std::string> row = {block["name"]};
    for (const auto bytes : categories_of(block)) row.push_back(format_bytes(bytes));
    row.push_back(bytes_of(block, "peak_bytes"));
    row.push_back(bytes_of(block, "saved_bytes"));
    table.rows.push_back(row);
  }
  return table;
}

std::string text_of(const nlohmann::json& result) {
  std::vector<CategoryBytes> peaks;
  for (const auto& rank : result["ranks"]) peaks.push_back(categories_of(rank));
  auto text = "memory   one training step: " + result["name"].get<std::string>() + "\n" + memory::memory_table(peaks);
  const std::string block = result.at("peak_block");
  text += "peak in " + result.at("peak_phase").get<std::string>() + (block.empty() ? "" : " of block '" + block + "'") +
          gathered_text(result.at("gathered_bytes")) + "\n";
  text += "predicted " + bytes_of(result, "predicted_peak_bytes") + " · activations at most " +
          bytes_of(result, "activations_peak_bytes") + ", " + bytes_of(result, "saved_bytes") +
          " saved by forward · step " + seconds_of(result) + "\n";
  if (const std::string plan = result["recompute"]["plan"]; !plan.empty()) text += "recompute " + plan + "\n";
  text += "\n";
  return text + text_of(table_of_blocks(result));
}

report::RunReport page_of(const nlohmann::json& result) {
  report::RunReport page{.title = "Memory of one training step", .subtitle = result["name"]};
  page.summary = {{"peak", bytes_of(result, "peak_bytes")},
                  {"predicted", bytes_of(result, "predicted_peak_bytes")},
                  {"activations at most", bytes_of(result, "activations_peak_bytes")},
                  {"saved by forward", bytes_of(result, "saved_bytes")},
                  {"step", seconds_of(result)}};
  page.over_time = {curve_of(result, "The rank that holds most")};
  report::MemoryBars bars{.form = "measured"};
  for (const auto& rank : result["ranks"]) {
    bars.ranks.push_back(categories_of(rank));
    bars.predicted.push_back(rank["predicted_peak_bytes"]);
  }
  page.memory = {bars};
  page.tables = {table_of_blocks(result)};
  return page;
}

void write_page(const Arguments& arguments, const report::RunReport& page) {
  const auto path = arguments.flag("--page");
  if (!path) return;
  storage::write_named_file("--page file", *path, render_report(page));
  log::info("page     " + *path);
}

/// Of this process's GPUs.
void write_snapshot(const Arguments& arguments) {
  const auto path = arguments.flag("--snapshot");
  if (!path) return;
  storage::write_named_file("--snapshot file", *path, memory::device_snapshot());
  log::info("snapshot " + *path);
}

void measure(const Arguments& arguments) {
  const auto job = job::read_job(memory_settings(arguments));
  check_training(job);
  check_has_plan(job);
  if (job::prints_for_the_job()) {
    for (const auto& line : job::idle_settings(job)) log::warn(line);
  }
  const auto shape = shape_of(job);
  if (arguments.flag("--snapshot")) memory::record_device_history(job.parallel.device);
  job::on_ranks(job, [&](comm::ProcessGroup& group) {
    const auto own = measure_step(job, shape, group);
    const auto result = result_of(own, job, shape, group);
    if (group.rank() != 0) return;
    write_result(arguments, text_of(result), result);
    write_page(arguments, page_of(result));
    write_snapshot(arguments);
  });
}

nlohmann::json read_result(const std::string& path) {
  constexpr uint64_t kLargest = 64 << 20;
  const auto text = storage::read_named_file("result file", path, kLargest);
  try {
    auto result = nlohmann::json::parse(text);
    curve_of(result, "");
    text_of(result);
    return result;
  } catch (const nlohmann::json::exception&) {
    throw DataError("'" + path + "' is no result of tandem memory", "write one with tandem memory --json FILE");
  }
}

void compare(const Arguments& arguments) {
  if (arguments.words.size() != 2) throw UsageError("--compare wants two files: tandem memory --compare A.json B.json");
  if (arguments.flag("--snapshot"))
    throw UsageError("--compare measures nothing, so that --snapshot has no step to show");
  report::RunReport page{.title = "Memory of two training steps"};
  report::ReportTable table{.caption = "Both steps",
                            .head = {"result", "peak", "predicted", "activations at most", "saved by forward", "step"}};
  auto results = nlohmann::json::array();
  for (const auto& path : arguments.words) {
    const auto result = read_result(path);
    page.over_time.push_back(curve_of(result, path + ": " + result["name"].get<std::string>()));
    page.memory.push_back({.form = path, .ranks = {categories_of(result)}});
    table.rows.push_back({path, bytes_of(result, "peak_bytes"), bytes_of(result, "predicted_peak_bytes"),
                          bytes_of(result, "activations_peak_bytes"), bytes_of(result, "saved_bytes"),
                          seconds_of(result)});
    results.push_back(result);
  }
  page.tables = {table};
  write_result(arguments, text_of(table), results);
  write_page(arguments, page);
}

}  // namespace

int run_memory(const Arguments& arguments) {
  memory::install_meter();
  arguments.flag("--compare") ? compare(arguments) : measure(arguments);
  return 0;
}

}  // namespace tandem::cli
