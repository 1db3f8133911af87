#include "tandem/cli/run_report.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/log.h"
#include "tandem/cli/run_folder.h"
#include "tandem/report/report.h"
#include "tandem/settings/value.h"

namespace tandem::cli {
namespace {

report::MemoryBars bars_of(std::string title, const std::vector<RankFacts>& ranks) {
  report::MemoryBars bars;
  bars.form = std::move(title);
  for (const auto& facts : ranks) bars.ranks.push_back(facts.at_peak);
  return bars;
}

/// With one decimal below 10, so that a short run has not taken 0 seconds.
std::string rounded(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", number);
  return number < 9.95 ? text : format_count(std::llround(number));
}

std::vector<std::pair<std::string, std::string>> summary_of(const nlohmann::json& result) {
  std::vector<std::pair<std::string, std::string>> summary;
  if (result["test_images"].get<int64_t>() > 0) {
    summary.emplace_back("top-1", format_percent(result["top1"]));
    summary.emplace_back("top-5", format_percent(result["top5"]));
  }
  summary.emplace_back("images/s", rounded(result["images_per_second"]));
  summary.emplace_back("training seconds", rounded(result["total_seconds"]));
  summary.emplace_back("steps", format_count(result["steps"]));
  return summary;
}

std::vector<report::LineChart> charts_of(const RunCurves& curves) {
  std::vector<report::LineChart> charts;
  const auto add = [&](const char* title, const char* name, const Curve& points) {
    if (points.empty()) return;
    report::LineChart chart;
    chart.title = title;
    chart.x_label = "step";
    chart.series = {{name, points}};
    charts.push_back(chart);
  };
  add("Training loss", "loss", curves.losses);
  add("Learning rate", "lr", curves.rates);
  add("Top-1 on the held-out set", "top-1", curves.top1);
  return charts;
}

/// The form of this run first; measured over two training steps each.
std::vector<report::MemoryBars> memory_of(const settings::Settings& settings, const std::vector<FormMemory>& forms,
                                          const std::vector<RankFacts>& facts) {
  if (forms.size() < 2) return {bars_of(std::string(name_of(head_form(settings))), facts)};
  std::vector<report::MemoryBars> bars;
  for (const auto& probe : forms) {
    const auto place = probe.form == head_form(settings) ? bars.begin() : bars.end();
    const auto at = bars.insert(place, bars_of(std::string(name_of(probe.form)), probe.ranks));
    at->predicted = probe.predicted;
  }
  return bars;
}

}  // namespace

std::filesystem::path write_run_report(const std::filesystem::path& folder, const settings::Settings& settings,
                                       const nlohmann::json& result, const std::vector<FormMemory>& forms,
                                       const std::vector<RankFacts>& facts, const RunCurves& curves) {
  report::RunReport page;
  const auto classes = format_count(result["classes"]);
  page.title = settings.get_string("model") + ", " + classes + " classes over " + format_count(result["ranks"]) +
               (result["ranks"] == 1 ? " rank" : " ranks");
  page.subtitle = "run " + folder.string();
  page.summary = summary_of(result);
  page.curves = charts_of(curves);
  page.memory = memory_of(settings, forms, facts);
  page.memory_note = forms.size() < 2 ? "Peak of the whole run, its tests included."
                                      : "Peak of two training steps of each form; the run's own peak, its tests "
                                        "included, is in result.json.";
  for (size_t rank = 0; rank < facts.size(); ++rank) {
    for (const auto& [operation, count] : facts[rank].wire) {
      page.wire.push_back({static_cast<int>(rank), operation, count.calls, count.bytes});
    }
  }
  for (const auto& setting : settings.schema()) {
    page.settings.emplace_back(setting.key, settings::format_value(settings.get(setting.key)));
  }
  const auto path = folder / "report.html";
  write_run_file(path, report::render_report(page));
  write_run_file(folder / "memory.svg", report::memory_figure_svg(page.memory));
  return path;
}

}  // namespace tandem::cli
