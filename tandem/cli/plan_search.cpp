#include "tandem/cli/plan_search.h"

#include "tandem/base/format.h"
#include "tandem/base/table.h"
#include "tandem/report/chart.h"

namespace tandem::cli {
namespace {

bool is_chosen(const job::SharedPlan& plan, const job::SharedPlans& plans) {
  return !plans.fitting.empty() && plans.fitting.front().words == plan.words;
}

std::string milliseconds(double seconds) { return format_number("%.4g", seconds * 1e3) + " ms"; }

std::string times(double seconds, const job::SharedPlans& plans) {
  return format_number("%.2f", seconds / plans.lower_bound);
}

}  // namespace

std::string plans_text(const job::SharedPlans& plans) {
  std::string text = "plans     " + format_count(plans.estimated) + " estimated, " + format_count(plans.rehearsed) +
                     " rehearsed; none takes less than " + milliseconds(plans.lower_bound) + " a step\n";
  Table table({"step, about", "of the bound", "peak of a rank", "plan", ""});
  for (const auto& plan : plans.front) {
    table.add_row({milliseconds(plan.seconds), times(plan.seconds, plans), format_bytes(plan.peak_bytes), plan.text(),
                   is_chosen(plan, plans) ? "chosen" : ""});
  }
  text += table.str();
  if (plans.fitting.empty()) return text;
  text += "settings ";
  for (const auto& word : plans.fitting.front().words) text += " " + word;
  return text + "\n";
}

nlohmann::json plans_json(const job::SharedPlans& plans) {
  auto all = nlohmann::json::array();
  for (const auto& plan : plans.front) {
    all.push_back({{"mesh", plan.mesh},
                   {"schedule", plan.schedule},
                   {"strategy", plan.strategy},
                   {"micro_batches", plan.micro_batches},
                   {"recompute", plan.recompute},
                   {"head_over_all", plan.divides_head},
                   {"seconds", plan.seconds},
                   {"peak_bytes", plan.peak_bytes},
                   {"settings", plan.words},
                   {"is_chosen", is_chosen(plan, plans)}});
  }
  return {{"plans", all},
          {"lower_bound", plans.lower_bound},
          {"gap", plans.fitting.empty() ? nlohmann::json()
                                        : nlohmann::json(plans.fitting.front().seconds / plans.lower_bound - 1)}};
}

std::string plans_figure(const job::SharedPlans& plans) {
  report::Series front{.name = "MiB of the rank with the most", .points = {}};
  for (const auto& plan : plans.front) {
    front.points.emplace_back(plan.seconds * 1e3, static_cast<double>(plan.peak_bytes) / (1 << 20));
  }
  return report::line_chart_svg({.title = "plans that no other is faster and smaller than",
                                 .x_label = "milliseconds of a step, about",
                                 .series = {front}});
}

}  // namespace tandem::cli
