#include "tandem/cli/run/report.h"

#include <cmath>
#include <cstdio>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/log.h"
#include "tandem/cli/run/folder.h"
#include "tandem/report/report.h"
#include "tandem/settings/value.h"

namespace tandem::cli {
namespace {

report::MemoryBars bars_of(std::string title, const std::vector<job::RankFacts>& ranks) {
  report::MemoryBars bars;
  bars.form = std::move(title);
  for (const auto& facts : ranks) {
    const bool has_trained = total_of(facts.train_at_peak) > 0;
    bars.ranks.push_back(has_trained ? facts.train_at_peak : facts.at_peak);
    if (has_trained) bars.predicted.push_back(facts.train_predicted_peak);
  }
  return bars;
}

/// With one decimal below 10, so that a short run does not show 0 seconds.
std::string rounded(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", number);
  return number < 9.95 ? text : format_count(std::llround(number));
}

std::vector<std::pair<std::string, std::string>> summary_of(const train::Outcome& outcome) {
  std::vector<std::pair<std::string, std::string>> summary;
  for (const auto& score : outcome.scores.list) {
    if (score.unit == train::ScoreUnit::fraction) summary.emplace_back(score.label, format_percent(score.value));
  }
  summary.emplace_back("images/s", rounded(images_per_second(outcome)));
  summary.emplace_back("training seconds", rounded(outcome.total_seconds));
  summary.emplace_back("steps", format_count(outcome.steps));
  return summary;
}

Curve in_percent(Curve fractions) {
  for (auto& [step, value] : fractions) value *= 100;
  return fractions;
}

std::vector<report::LineChart> charts_of(const RunCurves& curves, int64_t classes, std::string_view tests) {
  std::vector<report::LineChart> charts;
  const auto add = [&](const std::string& title, const char* name, const Curve& points, std::string note) {
    if (points.empty()) return;
    charts.push_back({.title = title, .x_label = "step", .series = {{name, points}}, .note = std::move(note)});
  };
  add("Training loss", "loss", curves.losses,
      "How far the answers are from the labels, in the batch of that step. It falls, in jumps; 0 is the best.");
  add("Learning rate", "lr", curves.rates, "How far a step moves the weights: train.lr is its height.");
  add("Top-1 on the " + std::string(tests) + ", %", "top-1", in_percent(curves.top1),
      "How many images that the model was not trained on it takes for what they are. By chance it would be " +
          format_percent(1 / static_cast<double>(classes)) + ".");
  return charts;
}

/// The memory of this run, and of each other form of the head.
std::vector<report::MemoryBars> memory_of(const job::HeadForm& own, const Trained& trained) {
  std::vector<report::MemoryBars> bars = {bars_of(std::string(own.name), trained.ranks)};
  for (const auto& [form, ranks] : trained.forms) {
    bars.push_back({.form = form + ", predicted", .ranks = ranks, .predicted = {}});
  }
  return bars;
}

std::vector<report::WireRow> wire_of(const std::vector<job::RankFacts>& ranks) {
  std::vector<report::WireRow> rows;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const auto& [operation, count] : ranks[rank].wire)
      rows.push_back({static_cast<int>(rank), operation, count.calls, count.bytes});
  }
  return rows;
}

/// Those that were changed; then, folded away, those at their defaults, and those without effect in this job.
void add_settings(report::RunReport& page, const job::Job& job) {
  report::FoldedSettings usual{.title = "at their defaults", .settings = {}};
  report::FoldedSettings idle{.title = "without effect in this job", .settings = {}};
  for (const auto& setting : job.settings.schema()) {
    auto& part = is_idle(job, setting.key)              ? idle.settings
                 : job.settings.is_default(setting.key) ? usual.settings
                                                        : page.settings;
    part.emplace_back(setting.key, settings::format_value(job.settings.get(setting.key)));
  }
  for (auto* folded : {&usual, &idle}) {
    folded->title = std::to_string(folded->settings.size()) + " settings " + folded->title;
    page.folded_settings.push_back(std::move(*folded));
  }
}

}  // namespace

std::filesystem::path write_run_report(const job::Job& job, const Trained& trained, const RunCurves& curves,
                                       const data::Dataset* test) {
  report::RunReport page;
  const auto ranks = trained.ranks.size();
  page.title = job.model.name + ", " + format_count(trained.classes) + " classes over " + std::to_string(ranks) +
               (ranks == 1 ? " rank" : " ranks");
  page.subtitle = "run " + trained.folder.string();
  page.summary = summary_of(trained.outcome);
  page.curves = charts_of(curves, trained.classes, trained.tests);
  if (trained.answers) add_answers(page, *trained.answers, *test);
  if (!trained.timeline.empty()) {
    page.steps = {chart_of(trained.timeline)};
    write_run_file(trained.folder / "timeline.json", trace_events_text(trained.timeline));
  }
  page.memory = memory_of(*job.head.form, trained);
  page.memory_note = "Peak of the training steps; that of the whole run, its tests included, is in result.json.";
  page.wire = wire_of(trained.ranks);
  add_settings(page, job);
  const auto path = trained.folder / "report.html";
  write_run_file(path, report::render_report(page));
  write_run_file(trained.folder / "memory.svg", report::memory_figure_svg(page.memory));
  return path;
}

}  // namespace tandem::cli
