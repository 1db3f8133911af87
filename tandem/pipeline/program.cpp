#include "tandem/pipeline/program.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"

namespace tandem::pipeline {
namespace {

/// Whether another stage is there, and on another rank.
bool is_elsewhere(const Program& program, int other, int stage) {
  return other >= 0 && other < program.num_stages() && program.rank_of[other] != program.rank_of[stage];
}

/// What has to be there before an action of a stage, and comes from its neighbour.
std::optional<Action> receive_for(const Program& program, const Action& action) {
  const auto [what, stage, micro_batch] = action;
  if (what == What::forward && is_elsewhere(program, stage - 1, stage)) {
    return Action{What::receive_input, stage, micro_batch};
  }
  if (begins_backward(what) && is_elsewhere(program, stage + 1, stage)) {
    return Action{What::receive_gradient, stage, micro_batch};
  }
  return std::nullopt;
}

/// What an action makes and a neighbour waits for.
std::optional<Action> send_after(const Program& program, const Action& action) {
  const auto [what, stage, micro_batch] = action;
  if (what == What::forward && is_elsewhere(program, stage + 1, stage)) {
    return Action{What::send_output, stage, micro_batch};
  }
  if (begins_backward(what) && is_elsewhere(program, stage - 1, stage)) {
    return Action{What::send_gradient, stage, micro_batch};
  }
  return std::nullopt;
}

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
      throw SettingsError(place + ": " + quote(word) + " is no action",
                          "write the stage, F, B, I, W, SEND_F, RECV_F, SEND_B or RECV_B, and the micro-batch: 0F3");
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

Program with_messages(Program program) {
  for (auto& list : program.lists) {
    std::vector<Action> all;
    for (const auto& action : list) {
      if (const auto message = receive_for(program, action)) all.push_back(*message);
      all.push_back(action);
      if (const auto message = send_after(program, action)) all.push_back(*message);
    }
    list = std::move(all);
  }
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
