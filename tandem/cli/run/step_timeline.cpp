#include "tandem/cli/run/step_timeline.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tandem/base/format.h"
#include "tandem/base/seconds.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"

namespace tandem::cli {
namespace {

using pipeline::Timed;
using pipeline::What;

nlohmann::json json_of(const std::vector<Timed>& actions, double now) {
  auto all = nlohmann::json::array();
  for (const auto& [action, begin, end, bytes] : actions) {
    all.push_back({text_of(action), begin - now, end - now, bytes});
  }
  return all;
}

std::vector<Timed> timed_of(const std::string& text) {
  std::vector<Timed> all;
  for (const auto& one : nlohmann::json::parse(text)) {
    const auto action = pipeline::parse_action(one[0].get<std::string>());
    all.push_back({action.value(), one[1], one[2], one[3]});
  }
  return all;
}

/// From the first action of any rank on.
void begin_at_zero(StepTimeline& timeline) {
  double first = INFINITY;
  for (const auto& rank : timeline) {
    for (const auto& one : rank) first = std::min(first, one.begin);
  }
  for (auto& rank : timeline) {
    for (auto& one : rank) one.begin -= first, one.end -= first;
  }
}

report::StepBar::Kind kind_of(What what) {
  if (what == What::forward || what == What::scores) return report::StepBar::Kind::forward;
  if (what == What::weight_gradient || what == What::class_gradient) return report::StepBar::Kind::weight_gradients;
  return is_message(what) ? report::StepBar::Kind::waits : report::StepBar::Kind::backward;
}

/// "F3", with the stage where a rank has several.
std::string name_of(const pipeline::Action& action, bool has_stages) {
  const auto text = text_of(action);
  return has_stages ? text : text.substr(std::to_string(action.stage).size());
}

bool has_stages(const std::vector<Timed>& actions) {
  return std::ranges::any_of(actions,
                             [&](const Timed& one) { return one.action.stage != actions.front().action.stage; });
}

}  // namespace

StepTimeline gather_timeline(const std::vector<Timed>& own, comm::ProcessGroup& group) {
  if (!comm::any_rank(!own.empty(), group)) return {};
  comm::barrier(group);
  const double now = seconds_since(std::chrono::steady_clock::time_point());
  StepTimeline timeline;
  for (const auto& text : comm::gather_texts(json_of(own, now).dump(), group)) timeline.push_back(timed_of(text));
  if (group.rank() != 0) return {};
  begin_at_zero(timeline);
  return timeline;
}

report::StepChart chart_of(const StepTimeline& timeline) {
  report::StepChart chart{.title = "The last step", .note = "", .lanes = {}};
  double busy = 0, end = 0;
  for (size_t rank = 0; rank < timeline.size(); ++rank) {
    report::StepLane lane{.name = "rank " + std::to_string(rank), .bars = {}, .bytes = {}};
    for (const auto& [action, begin, last, bytes] : timeline[rank]) {
      end = std::max(end, last);
      if (!is_message(action.what)) busy += last - begin;
      if (bytes > 0) lane.bytes.emplace_back(last, static_cast<double>(bytes));
      if (is_send(action.what)) continue;
      lane.bars.push_back({name_of(action, has_stages(timeline[rank])), kind_of(action.what), begin, last});
    }
    chart.lanes.push_back(std::move(lane));
  }
  const double bubble = 1 - busy / (end * static_cast<double>(timeline.size()));
  chart.note = "Ranks wait for each other, or for messages, in " + format_percent(bubble) +
               " of their time. timeline.json shows the same in Perfetto (ui.perfetto.dev).";
  return chart;
}

std::string trace_events_text(const StepTimeline& timeline) {
  constexpr double kMicroseconds = 1e6;
  auto events = nlohmann::json::array();
  for (size_t rank = 0; rank < timeline.size(); ++rank) {
    events.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", 0},
                      {"tid", rank},
                      {"args", {{"name", "rank " + std::to_string(rank)}}}});
    for (const auto& [action, begin, end, bytes] : timeline[rank]) {
      const char* category = is_receive(action.what) ? "receive" : is_send(action.what) ? "send" : "compute";
      events.push_back({{"ph", "X"},
                        {"name", text_of(action)},
                        {"cat", category},
                        {"ts", begin * kMicroseconds},
                        {"dur", (end - begin) * kMicroseconds},
                        {"pid", 0},
                        {"tid", rank},
                        {"args", {{"stage", action.stage}, {"micro_batch", action.micro_batch}}}});
      if (bytes == 0) continue;
      events.push_back({{"ph", "C"},
                        {"name", "bytes of rank " + std::to_string(rank)},
                        {"ts", end * kMicroseconds},
                        {"pid", 0},
                        {"args", {{"bytes", bytes}}}});
    }
  }
  return nlohmann::json({{"traceEvents", events}, {"displayTimeUnit", "ms"}}).dump() + "\n";
}

}  // namespace tandem::cli
