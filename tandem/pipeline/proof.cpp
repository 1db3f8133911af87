#include "tandem/pipeline/proof.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace tandem::pipeline {
namespace {

std::string in_place(const Program& program, int rank, const Action& action) {
  return program.place_of(rank) + ": " + text_of(action);
}

[[noreturn]] void refuse(const Program& program, int rank, const Action& action, const std::string& why,
                         const std::string& remedy = "") {
  throw ProgramError(in_place(program, rank, action) + " " + why, remedy);
}

/// What one rank has done so far, read from its list alone.
class RankBook {
 public:
  RankBook(const Program& program, int rank, const ProofOptions& options)
      : program_(program), rank_(rank), options_(options), divides_head_(program.divides_head()) {}

  MostHeld check() {
    for (const auto& action : program_.lists[rank_]) {
      check_numbers(action);
      if (!done_.insert(action).second) refuse(program_, rank_, action, "comes twice", "leave one out");
      if (is_of_head(action.what)) {
        check_head(action);
      } else {
        is_message(action.what) ? check_message(action) : check_work(action);
      }
    }
    check_end();
    return most_;
  }

 private:
  bool has_done(What what, const Action& of) const { return done_.contains({what, of.stage, of.micro_batch}); }
  bool is_here(int stage) const { return program_.rank_of[stage] == rank_; }
  bool is_last(int stage) const { return stage + 1 == program_.num_stages(); }
  bool is_home() const { return rank_ == program_.home(); }

  void need(bool is_there, const Action& action, const Action& needed) const {
    if (!is_there) refuse(program_, rank_, action, "comes without " + text_of(needed) + " before it");
  }
  void need(const Action& action, What what) const {
    need(has_done(what, action), action, {what, action.stage, action.micro_batch});
  }

  void check_numbers(const Action& action) const {
    const auto [what, stage, micro_batch] = action;
    if (is_of_head(what)) return check_numbers_of_head(action);
    if (stage >= program_.num_stages() || micro_batch >= program_.micro_batches) {
      refuse(program_, rank_, action,
             "is of none of " + std::to_string(program_.num_stages()) + " stages and " +
                 std::to_string(program_.micro_batches) + " micro-batches");
    }
    if (!is_here(stage)) {
      refuse(program_, rank_, action, "is of a stage that " + program_.place_of(program_.rank_of[stage]) + " holds");
    }
  }

  void check_numbers_of_head(const Action& action) const {
    const auto [what, part, micro_batch] = action;
    if (part >= program_.num_ranks() || micro_batch >= program_.micro_batches) {
      refuse(program_, rank_, action,
             "is of none of " + std::to_string(program_.num_ranks()) + " parts of the classifier and " +
                 std::to_string(program_.micro_batches) + " micro-batches");
    }
    if (part != rank_) {
      refuse(program_, rank_, action, "is of a part of the classifier that " + program_.place_of(part) + " holds");
    }
  }

  /// A neighbour's result is there: it was made here, or received.
  void need_neighbour(const Action& action, int neighbour, What made, What received) const {
    if (!is_here(neighbour)) return need(action, received);
    if (made == What::input_gradient && has_done(What::backward, {made, neighbour, action.micro_batch})) return;
    const Action needed = {made, neighbour, action.micro_batch};
    need(done_.contains(needed), action, needed);
  }

  void check_work(const Action& action) {
    const auto [what, stage, micro_batch] = action;
    if (what == What::forward) {
      if (stage > 0) need_neighbour(action, stage - 1, What::forward, What::receive_input);
      if (stage > 0 && !is_here(stage - 1)) --inputs_;
      ++graphs_;
    } else if (begins_backward(what)) {
      need(action, What::forward);
      const auto other = what == What::backward ? What::input_gradient : What::backward;
      if (has_done(other, action))
        refuse(program_, rank_, action, "is done by " + text_of({other, stage, micro_batch}));
      if (!is_last(stage)) need_neighbour(action, stage + 1, What::input_gradient, What::receive_gradient);
      if (!is_last(stage) && !is_here(stage + 1)) --inputs_;
      if (is_last(stage) && divides_head_) need(action, {What::receive_scores, rank_, micro_batch});
      --graphs_;
      if (what == What::input_gradient) ++work_;
    } else {
      need(action, What::input_gradient);
      --work_;
    }
    note(action);
  }

  void need(const Action& action, const Action& needed) const { need(done_.contains(needed), action, needed); }

  /// Of a divided classifier: the home sends and gets what the others get and send.
  void check_head(const Action& action) {
    const auto [what, part, micro_batch] = action;
    const auto own = [&, i = micro_batch](What other) { return Action{other, rank_, i}; };
    const bool is_of_home = what == What::send_features || what == What::receive_scores || what == What::send_totals;
    if (is_message(what) && is_of_home != is_home()) {
      refuse(program_, rank_, action,
             is_home() ? "is with the last stage, which has it" : "is without the last stage, which does that");
    }
    const bool has_others = program_.num_ranks() > 1;
    const Action features = {What::forward, program_.num_stages() - 1, micro_batch};
    switch (what) {
      case What::scores:
        need(action, is_home() ? features : own(What::receive_features));
        if (is_home() && has_others) need(action, own(What::send_features));
        ++scores_;
        break;
      case What::class_gradient:
        need(action, own(What::scores));
        need(action, own(is_home() ? What::receive_scores : What::receive_totals));
        if (is_home() && has_others) need(action, own(What::send_totals));
        --scores_;
        break;
      case What::send_features:
        need(action, features);
        break;
      case What::send_scores:
      case What::receive_scores:
        need(action, own(What::scores));
        break;
      case What::send_totals:
        need(action, own(What::receive_scores));
        break;
      default:
        break;
    }
    most_.scores = std::max(most_.scores, scores_);
  }

  void check_message(const Action& action) {
    const auto [what, stage, micro_batch] = action;
    const int neighbour = partner_of(action).stage;
    if (neighbour < 0 || neighbour >= program_.num_stages()) {
      refuse(program_, rank_, action, "has no stage at its other end");
    }
    if (is_here(neighbour)) {
      refuse(program_, rank_, action, "is between two stages of this rank", "leave it out");
    }
    if (what == What::send_output) need(action, What::forward);
    if (what == What::send_gradient && !has_done(What::backward, action)) need(action, What::input_gradient);
    if (is_receive(what)) ++inputs_;
    note(action);
  }

  void note(const Action& action) {
    most_.graphs = std::max(most_.graphs, graphs_);
    most_.weight_work = std::max(most_.weight_work, work_);
    most_.both = std::max(most_.both, graphs_ + work_);
    most_.inputs = std::max(most_.inputs, inputs_);
    if (graphs_ + work_ > options_.most_held) {
      refuse(program_, rank_, action,
             "holds " + std::to_string(graphs_ + work_) + " micro-batches of stages, wanted at most " +
                 std::to_string(options_.most_held));
    }
  }

  /// All of the step is done.
  void check_end() const {
    for (const int stage : program_.stages_of(rank_)) {
      for (int micro_batch = 0; micro_batch < program_.micro_batches; ++micro_batch) check_stage(stage, micro_batch);
    }
    if (!divides_head_) return;
    for (int micro_batch = 0; micro_batch < program_.micro_batches; ++micro_batch) {
      for (const auto what : {What::scores, What::class_gradient}) {
        if (!done_.contains({what, rank_, micro_batch})) refuse_missing({what, rank_, micro_batch});
      }
    }
  }

  [[noreturn]] void refuse_missing(const Action& action) const {
    throw ProgramError(
        program_.place_of(rank_) + ": there is no " + text_of(action),
        is_of_head(action.what) ? "each rank has a part of the classifier" : "each stage runs each micro-batch");
  }

  void check_stage(int stage, int micro_batch) const {
    const auto missing = [&](What what) { refuse_missing({what, stage, micro_batch}); };
    const Action any = {What::forward, stage, micro_batch};
    if (!has_done(What::forward, any)) missing(What::forward);
    if (!program_.has_backward() || has_done(What::backward, any)) return;
    if (!has_done(What::input_gradient, any)) missing(What::backward);
    if (!has_done(What::weight_gradient, any)) missing(What::weight_gradient);
  }

  const Program& program_;
  int rank_;
  const ProofOptions& options_;
  bool divides_head_;
  std::set<Action> done_;
  int graphs_ = 0, work_ = 0, inputs_ = 0, scores_ = 0;
  MostHeld most_;
};

/// Where each action is.
struct Position {
  int rank;
  size_t index;
};
using Positions = std::map<Action, Position>;

Positions positions_of(const Program& program) {
  Positions positions;
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    const auto& list = program.lists[rank];
    for (size_t i = 0; i < list.size(); ++i) positions[list[i]] = {rank, i};
  }
  return positions;
}

void check_partners(const Program& program, const Positions& positions) {
  for (const auto& [action, at] : positions) {
    if (!is_message(action.what)) continue;
    for (const auto& partner : partners_of(program, action)) {
      if (positions.contains(partner)) continue;
      const int rank = is_of_head(partner.what) ? partner.stage : program.rank_of[partner.stage];
      refuse(program, at.rank, action, is_send(action.what) ? "is received by nobody" : "is met by no send",
             "add " + text_of(partner) + " to " + program.place_of(rank) + ", or leave it out");
    }
  }
}

/// Runs all lists without doing anything. With each action it knows how far every rank must have come before it.
class Order {
 public:
  Order(const Program& program, const Positions& positions, bool sends_wait)
      : program_(program), positions_(positions), sends_wait_(sends_wait), next_(program.lists.size()) {
    const std::vector<size_t> none(program.lists.size());
    before_.resize(program.lists.size());
    for (size_t rank = 0; rank < before_.size(); ++rank) before_[rank].assign(program.lists[rank].size(), none);
  }

  void run() {
    bool moves = true;
    while (moves) {
      moves = false;
      for (size_t rank = 0; rank < next_.size(); ++rank) {
        while (try_next(rank)) moves = true;
      }
    }
    for (size_t rank = 0; rank < next_.size(); ++rank) {
      if (next_[rank] < program_.lists[rank].size()) refuse_circle();
    }
  }

  /// The most messages of a rank that may be under way at once: those sent, less those that the receivers must have
  /// begun to wait for by then.
  int under_way(int rank) const {
    int most = 0;
    const auto& list = program_.lists[rank];
    for (size_t i = 0; i < list.size(); ++i) {
      if (!is_send(list[i].what)) continue;
      int count = 0;
      for (size_t j = 0; j <= i; ++j) {
        if (!is_send(list[j].what)) continue;
        count += is_received(list[j], before_[rank][i]) ? 0 : 1;
      }
      most = std::max(most, count);
    }
    return most;
  }

  /// See receipts_of().
  std::vector<std::vector<size_t>> receipts(int rank) const {
    const auto& list = program_.lists[rank];
    std::vector<std::vector<size_t>> receipts(list.size());
    std::vector<size_t> open;
    for (size_t i = 0; i < list.size(); ++i) {
      std::erase_if(open, [&](size_t send) {
        if (!is_received(list[send], before_[rank][i])) return false;
        receipts[i].push_back(send);
        return true;
      });
      if (is_send(list[i].what)) open.push_back(i);
    }
    return receipts;
  }

 private:
  bool is_done(const Position& at) const { return next_[at.rank] > at.index; }

  /// Its receivers have begun to wait where ranks have come as far as `before` says.
  bool is_received(const Action& send, const std::vector<size_t>& before) const {
    return std::ranges::all_of(partners_of(program_, send), [&](const Action& receive) {
      const auto at = positions_.at(receive);
      return before[at.rank] > at.index;
    });
  }

  /// What an action waits for; nullopt: nothing.
  std::optional<Action> waits_for(const Action& action) const {
    if (!is_message(action.what)) return std::nullopt;
    if (is_send(action.what) && !sends_wait_) return std::nullopt;
    for (const auto& partner : partners_of(program_, action)) {
      const auto at = positions_.at(partner);
      if (!is_done(at) && !(sends_wait_ && next_[at.rank] == at.index)) return partner;
    }
    return std::nullopt;
  }

  bool try_next(size_t rank) {
    const size_t index = next_[rank];
    if (index == program_.lists[rank].size()) return false;
    const auto& action = program_.lists[rank][index];
    if (waits_for(action)) return false;
    auto& before = before_[rank][index];
    if (index > 0) before = before_[rank][index - 1];
    before[rank] = index;
    if (is_receive(action.what)) {
      for (const auto& send : partners_of(program_, action)) {
        const auto at = positions_.at(send);
        const auto& sender = before_[at.rank][at.index];
        for (size_t i = 0; i < before.size(); ++i) before[i] = std::max(before[i], sender[i]);
        before[at.rank] = std::max(before[at.rank], at.index + 1);
      }
    }
    ++next_[rank];
    return true;
  }

  [[noreturn]] void refuse_circle() const {
    std::string text = "ranks would wait for each other:";
    for (size_t rank = 0; rank < next_.size(); ++rank) {
      if (next_[rank] == program_.lists[rank].size()) continue;
      const auto& action = program_.lists[rank][next_[rank]];
      const auto partner = waits_for(action).value();
      text += (text.back() == ':' ? " " : "; ") + in_place(program_, static_cast<int>(rank), action) + " (action " +
              std::to_string(next_[rank] + 1) + ") waits for " + text_of(partner) + " of " +
              program_.place_of(positions_.at(partner).rank);
    }
    throw ProgramError(text, "receive later, or send earlier");
  }

  const Program& program_;
  const Positions& positions_;
  bool sends_wait_;
  std::vector<size_t> next_;                              // of each rank
  std::vector<std::vector<std::vector<size_t>>> before_;  // of an action: how many of each rank's come before it
};

}  // namespace

std::vector<MostHeld> prove(const Program& program, const ProofOptions& options) {
  std::vector<MostHeld> ranks;
  for (int rank = 0; rank < program.num_ranks(); ++rank) ranks.push_back(RankBook(program, rank, options).check());
  const auto positions = positions_of(program);
  check_partners(program, positions);
  Order order(program, positions, options.sends_wait);
  order.run();
  for (int rank = 0; rank < program.num_ranks(); ++rank) ranks[rank].messages = order.under_way(rank);
  return ranks;
}

std::vector<std::vector<size_t>> receipts_of(const Program& program, int rank) {
  const auto positions = positions_of(program);
  Order order(program, positions, /*sends_wait=*/false);
  order.run();
  return order.receipts(rank);
}

}  // namespace tandem::pipeline
