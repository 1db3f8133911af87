#include "tandem/pipeline/simulation.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace tandem::pipeline {
namespace {

double seconds_of(What what, const StageCost& cost) {
  if (what == What::forward) return cost.forward;
  if (what == What::backward) return cost.backward();
  if (what == What::input_gradient) return cost.input_gradient;
  return what == What::weight_gradient ? cost.weight_gradient : 0;
}

double seconds_of(What what, const HeadCost& cost) {
  if (what == What::scores) return cost.scores;
  return what == What::class_gradient ? cost.class_gradient : 0;
}

int64_t bytes_of(What what, const HeadCost& cost) {
  if (what == What::scores) return cost.kept_bytes;
  return what == What::class_gradient ? -cost.kept_bytes : 0;
}

/// How much more a rank holds after it.
int64_t bytes_of(What what, const StageCost& cost) {
  if (what == What::forward) return cost.graph_bytes;
  if (what == What::backward) return -cost.graph_bytes;
  if (what == What::input_gradient) return cost.weight_work_bytes - cost.graph_bytes;
  return what == What::weight_gradient ? -cost.weight_work_bytes : 0;
}

/// Runs lists as far as they go, again and again, until all are done: no order of the ranks changes the times.
class Clock {
 public:
  Clock(const Program& program, std::span<const StageCost> costs, const HeadCost& head)
      : program_(program), costs_(costs), head_(head), now_(program.lists.size()) {
    result_.ranks.resize(program.lists.size());
  }

  Simulation run() {
    bool moves = true;
    while (moves) {
      moves = false;
      for (size_t rank = 0; rank < now_.size(); ++rank) {
        while (try_next(rank)) moves = true;
      }
    }
    for (size_t rank = 0; rank < now_.size(); ++rank) {
      TORCH_CHECK_VALUE(result_.ranks[rank].actions.size() == program_.lists[rank].size(), "pipeline: rank ", rank,
                        " waits for ever, wanted a program that prove() accepts");
    }
    sum_up();
    return std::move(result_);
  }

 private:
  bool try_next(size_t rank) {
    auto& done = result_.ranks[rank].actions;
    const auto& list = program_.lists[rank];
    if (done.size() == list.size()) return false;
    const auto& action = list[done.size()];
    double end = now_[rank];
    if (is_receive(action.what)) {
      for (const auto& send : partners_of(program_, action)) {
        const auto arrival = arrivals_.find(send);
        if (arrival == arrivals_.end()) return false;
        end = std::max(end, arrival->second);
      }
    } else {
      end += is_of_head(action.what) ? seconds_of(action.what, head_) : seconds_of(action.what, costs_[action.stage]);
    }
    if (is_send(action.what)) arrivals_[action] = end + message_of(action);
    const auto before = done.empty() ? 0 : done.back().bytes;
    const auto more =
        is_of_head(action.what) ? bytes_of(action.what, head_) : bytes_of(action.what, costs_[action.stage]);
    done.push_back({action, now_[rank], end, before + more});
    result_.ranks[rank].peak_bytes = std::max(result_.ranks[rank].peak_bytes, done.back().bytes);
    now_[rank] = end;
    return true;
  }

  double message_of(const Action& send) const {
    if (is_of_head(send.what)) return head_.message;
    const auto& cost = costs_[send.stage];
    return send.what == What::send_output ? cost.output_message : cost.gradient_message;
  }

  void sum_up() {
    double first = INFINITY, last = 0, busy = 0;
    for (auto& rank : result_.ranks) {
      double begin = INFINITY, end = 0;
      for (const auto& timed : rank.actions) {
        if (is_message(timed.action.what)) continue;
        rank.busy += timed.end - timed.begin;
        begin = std::min(begin, timed.begin);
        end = std::max(end, timed.end);
      }
      rank.span = std::max(0.0, end - begin);
      busy += rank.busy;
      first = std::min(first, begin);
      last = std::max(last, end);
    }
    result_.makespan = std::max(0.0, last - first);
    const double all = result_.makespan * static_cast<double>(result_.ranks.size());
    result_.bubble = all > 0 ? 1 - busy / all : 0;
  }

  const Program& program_;
  std::span<const StageCost> costs_;
  const HeadCost& head_;
  std::vector<double> now_;
  std::map<Action, double> arrivals_;  // of sends
  Simulation result_;
};

/// "F3'": what a rank does in the n-th of its stages.
std::string cell_of(const Action& action, const std::vector<int>& stages) {
  if (is_of_head(action.what)) {
    return (action.what == What::scores ? 'S' : 'T') + std::to_string(action.micro_batch);
  }
  constexpr std::string_view kLetters = "FBBW";
  const auto chunk = std::ranges::find(stages, action.stage) - stages.begin();
  return kLetters[static_cast<size_t>(action.what)] + std::to_string(action.micro_batch) +
         std::string(static_cast<size_t>(chunk), '\'');
}

/// What a rank does in each unit of time; empty: nothing.
std::vector<std::string> row_of(const Simulation::Rank& rank, const std::vector<int>& stages, double unit) {
  std::vector<std::string> row;
  for (const auto& [action, begin, end, bytes] : rank.actions) {
    if (is_message(action.what)) continue;
    const auto first = static_cast<size_t>(std::lround(begin / unit));
    const auto last = std::max(first + 1, static_cast<size_t>(std::lround(end / unit)));
    if (row.size() < last) row.resize(last);
    for (size_t i = first; i < last; ++i) row[i] = cell_of(action, stages);
  }
  return row;
}

std::string padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

}  // namespace

std::vector<StageCost> even_costs(const Program& program, const StageCost& of_rank) {
  std::vector<StageCost> costs;
  for (const int rank : program.rank_of) {
    const auto stages = program.stages_of(rank);
    const auto chunks = static_cast<double>(stages.size());
    costs.push_back({of_rank.forward / chunks, of_rank.input_gradient / chunks, of_rank.weight_gradient / chunks,
                     of_rank.output_message, of_rank.gradient_message, of_rank.graph_bytes / std::ssize(stages),
                     of_rank.weight_work_bytes / std::ssize(stages)});
  }
  return costs;
}

Simulation simulate(const Program& program, std::span<const StageCost> costs, const HeadCost& head) {
  TORCH_CHECK_VALUE(costs.size() == program.rank_of.size(), "pipeline: there are ", costs.size(), " costs, wanted ",
                    program.rank_of.size(), ", one a stage");
  return Clock(program, costs, head).run();
}

std::string clock_table(const Program& program, const Simulation& simulation, double unit, int columns) {
  std::vector<std::vector<std::string>> rows;
  size_t units = 0, width = 1;
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    rows.push_back(row_of(simulation.ranks[rank], program.stages_of(rank), unit));
    units = std::max(units, rows.back().size());
    for (const auto& cell : rows.back()) width = std::max(width, cell.size());
  }
  width = std::max(width, std::to_string(units).size()) + 1;
  const size_t head = std::string("rank ").size() + std::to_string(rows.size() - 1).size() + 2;
  const size_t at_once = std::max<size_t>(1, (std::max<size_t>(head, columns) - head) / width);
  std::string text;
  for (size_t first = 0; first < units; first += at_once) {
    const size_t last = std::min(units, first + at_once);
    text += padded("", head);
    for (size_t i = first; i < last; ++i) text += padded(std::to_string(i), width);
    for (size_t rank = 0; rank < rows.size(); ++rank) {
      text += '\n' + padded("rank " + std::to_string(rank), head);
      for (size_t i = first; i < last; ++i) text += padded(i < rows[rank].size() ? rows[rank][i] : "", width);
      text.erase(text.find_last_not_of(' ') + 1);
    }
    text += '\n';
  }
  return text;
}

}  // namespace tandem::pipeline
