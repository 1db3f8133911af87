#include "tandem/pipeline/program.h"

#include <algorithm>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"

namespace tandem::pipeline {
namespace {

/// Whether another stage is there, and on another rank.
bool is_elsewhere(const Program& program, int other, int stage) {
  return other >= 0 && other < program.num_stages() && program.rank_of[other] != program.rank_of[stage];
}

/// A list of a rank with messages, in the making.
class ListWithMessages {
 public:
  ListWithMessages(const Program& program, int rank)
      : program_(program), rank_(rank), is_home_(rank == program.home()), divides_head_(program.divides_head()) {}

  void add(const Action& action) {
    const auto [what, stage, micro_batch] = action;
    if (what == What::receive_scores) return merge(micro_batch);
    add_receive_for(action);
    list_.push_back(action);
    add_send_after(action);
  }

  std::vector<Action> take() { return std::move(list_); }

 private:
  bool is_last(int stage) const { return stage + 1 == program_.num_stages(); }

  /// What has to be there before an action, and comes from elsewhere.
  void add_receive_for(const Action& action) {
    const auto [what, stage, micro_batch] = action;
    if (what == What::forward && is_elsewhere(program_, stage - 1, stage)) {
      list_.push_back({What::receive_input, stage, micro_batch});
    } else if (begins_backward(what) && is_elsewhere(program_, stage + 1, stage)) {
      list_.push_back({What::receive_gradient, stage, micro_batch});
    } else if (divides_head_ && is_home_ &&
               (what == What::class_gradient || (begins_backward(what) && is_last(stage)))) {
      merge(micro_batch);
    } else if (what == What::scores && !is_home_) {
      list_.push_back({What::receive_features, rank_, micro_batch});
    } else if (what == What::class_gradient) {
      list_.push_back({What::receive_totals, rank_, micro_batch});
    }
  }

  /// What an action makes and others wait for.
  void add_send_after(const Action& action) {
    const auto [what, stage, micro_batch] = action;
    if (what == What::forward && is_elsewhere(program_, stage + 1, stage)) {
      list_.push_back({What::send_output, stage, micro_batch});
    } else if (begins_backward(what) && is_elsewhere(program_, stage - 1, stage)) {
      list_.push_back({What::send_gradient, stage, micro_batch});
    } else if (what == What::forward && divides_head_ && is_last(stage)) {
      list_.push_back({What::send_features, rank_, micro_batch});
    } else if (what == What::scores && !is_home_) {
      list_.push_back({What::send_scores, rank_, micro_batch});
    }
  }

  void merge(int micro_batch) {
    if (!merged_.insert(micro_batch).second) return;
    list_.push_back({What::receive_scores, rank_, micro_batch});
    list_.push_back({What::send_totals, rank_, micro_batch});
  }

  const Program& program_;
  int rank_;
  bool is_home_, divides_head_;
  std::set<int> merged_;
  std::vector<Action> list_;
};

bool has_messages(const Program& program) {
  return std::ranges::any_of(program.lists, [](const auto& list) {
    return std::ranges::any_of(list, [](const Action& action) { return is_message(action.what); });
  });
}

/// Calls `take` with each part of a text between separators, without spaces around it.
template <class Take>
void split(std::string_view text, char separator, const Take& take) {
  while (true) {
    const auto end = std::min(text.find(separator), text.size());
    auto part = text.substr(0, end);
    const auto first = part.find_first_not_of(" \t\r\"");
    part = first == part.npos ? "" : part.substr(first, part.find_last_not_of(" \t\r\"") - first + 1);
    take(part);
    if (end == text.size()) return;
    text.remove_prefix(end + 1);
  }
}

std::vector<Action> parse_line(std::string_view line, const std::string& place) {
  std::vector<Action> list;
  split(line, ',', [&](std::string_view word) {
    if (word.empty()) return;
    const auto action = parse_action(word);
    if (!action) {
      throw SettingsError(
          place + ": " + quote(word) + " is no action",
          "write the stage, F, B, I, W, S, T, SEND_F, RECV_F or another message, and the micro-batch: 0F3");
    }
    list.push_back(*action);
  });
  return list;
}

/// A program has at least one action for each of its stages and micro-batches.
void check_numbers(const Program& program, const std::string& name) {
  size_t count = 0;
  for (const auto& list : program.lists) count += list.size();
  if (count == 0) throw SettingsError(name + ": there is no action", "write one line a rank: 0F0,0B0");
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    for (const auto& action : program.lists[rank]) {
      if (static_cast<size_t>(std::max(action.stage, action.micro_batch)) < count) continue;
      throw SettingsError(program.place_of(rank) + ": " + text_of(action) + " is one of " + std::to_string(count) +
                              " actions, wanted smaller numbers",
                          "number stages and micro-batches from 0 on");
    }
  }
}

/// Fills in the ranks of the stages.
void place_stages(Program& program, const std::string& name) {
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    for (const auto& action : program.lists[rank]) {
      if (action.what != What::forward) continue;
      if (action.stage >= program.num_stages()) program.rank_of.resize(action.stage + 1, -1);
      auto& holder = program.rank_of[action.stage];
      if (holder != -1 && holder != rank) {
        throw SettingsError(program.place_of(rank) + ": " + text_of(action) + ", but stage " +
                                std::to_string(action.stage) + " is in " + program.place_of(holder) + ", too",
                            "one rank holds a stage");
      }
      holder = rank;
    }
  }
  const auto missing = std::ranges::find(program.rank_of, -1);
  if (program.rank_of.empty() || missing != program.rank_of.end()) {
    throw SettingsError(name + ": no rank has a forward of stage " + std::to_string(missing - program.rank_of.begin()),
                        "number the stages from 0 on");
  }
}

}  // namespace

std::string Program::place_of(int rank) const { return places.empty() ? "rank " + std::to_string(rank) : places[rank]; }

std::vector<int> stages_of(const std::vector<int>& rank_of, int rank) {
  std::vector<int> stages;
  for (size_t stage = 0; stage < rank_of.size(); ++stage) {
    if (rank_of[stage] == rank) stages.push_back(static_cast<int>(stage));
  }
  return stages;
}

bool Program::has_backward() const {
  return std::ranges::any_of(lists, [](const auto& list) {
    return std::ranges::any_of(list, [](const Action& action) { return begins_backward(action.what); });
  });
}

bool Program::divides_head() const {
  return std::ranges::any_of(lists, [](const auto& list) {
    return std::ranges::any_of(list, [](const Action& action) { return is_of_head(action.what); });
  });
}

std::vector<Action> partners_of(const Program& program, const Action& message) {
  const auto [what, stage, micro_batch] = message;
  const auto of_others = [&, i = micro_batch](What other) {
    std::vector<Action> all;
    for (int rank = 0; rank < program.num_ranks(); ++rank) {
      if (rank != program.home()) all.push_back({other, rank, i});
    }
    return all;
  };
  const auto of_home = [&, i = micro_batch](What other) { return std::vector<Action>{{other, program.home(), i}}; };
  if (what == What::send_features) return of_others(What::receive_features);
  if (what == What::receive_features) return of_home(What::send_features);
  if (what == What::send_scores) return of_home(What::receive_scores);
  if (what == What::receive_scores) return of_others(What::send_scores);
  if (what == What::send_totals) return of_others(What::receive_totals);
  if (what == What::receive_totals) return of_home(What::send_totals);
  return {partner_of(message)};
}

Program with_messages(Program program) {
  std::vector<std::vector<Action>> lists;
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    ListWithMessages list(program, rank);
    for (const auto& action : program.lists[rank]) list.add(action);
    lists.push_back(list.take());
  }
  program.lists = std::move(lists);
  return program;
}

Program parse_program(std::string_view text, const std::string& name) {
  Program program;
  int number = 0;
  split(text, '\n', [&](std::string_view line) {
    ++number;
    if (line.empty() || line.front() == '#') return;
    const auto place = name + " line " + std::to_string(number);
    program.lists.push_back(parse_line(line, place));
    program.places.push_back(place);
  });
  check_numbers(program, name);
  place_stages(program, name);
  for (const auto& list : program.lists) {
    for (const auto& action : list) program.micro_batches = std::max(program.micro_batches, action.micro_batch + 1);
  }
  return has_messages(program) ? program : with_messages(std::move(program));
}

std::string text_of(const Program& program) {
  std::string text;
  for (const auto& list : program.lists) {
    for (size_t i = 0; i < list.size(); ++i) text.append(i > 0 ? "," : "").append(text_of(list[i]));
    text += '\n';
  }
  return text;
}

}  // namespace tandem::pipeline
