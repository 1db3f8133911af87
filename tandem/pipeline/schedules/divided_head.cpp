#include <limits>
#include <optional>

#include "tandem/pipeline/schedules/rank_list.h"
#include "tandem/pipeline/simulation.h"

namespace tandem::pipeline {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Runs the ranks action by action, each time the one that may begin first.
class Divide {
 public:
  Divide(Program& program, double product)
      : program_(program),
        costs_(even_costs(program, {})),
        head_(HeadCost::even(product, program.num_ranks())),
        ranks_(program.lists.size()) {}

  std::vector<std::vector<Action>> run() {
    while (const auto next = first_of_all()) take(*next);
    std::vector<std::vector<Action>> lists;
    for (auto& rank : ranks_) lists.push_back(std::move(rank.done));
    return lists;
  }

 private:
  struct Rank {
    double now = 0;
    size_t place = 0;                       // in its list
    int scored = 0, merged = 0, ended = 0;  // micro-batches
    std::vector<Action> done;
  };

  struct Next {
    double begin;
    int urgency;  // less goes first
    int rank;
    Action action;
    friend auto operator<=>(const Next&, const Next&) = default;
  };

  std::optional<Next> first_of_all() const {
    std::optional<Next> first;
    for (int rank = 0; rank < program_.num_ranks(); ++rank) {
      const auto& own = ranks_[rank];
      const auto offer = [&](int urgency, const Action& action) {
        const double begin = std::max(own.now, ready(action));
        if (begin == kNever) return;
        const Next next = {begin, urgency, rank, action};
        if (!first || next < *first) first = next;
      };
      const int all = program_.micro_batches;
      if (rank == program_.home() && own.merged < all) offer(0, {What::receive_scores, rank, own.merged});
      if (own.scored < all) offer(1, {What::scores, rank, own.scored});
      if (own.place < program_.lists[rank].size()) offer(2, program_.lists[rank][own.place]);
      if (own.ended < all) offer(3, {What::class_gradient, rank, own.ended});
    }
    return first;
  }

  double end_of(const Action& action) const {
    const auto at = ends_.find(action);
    return at == ends_.end() ? kNever : at->second;
  }
  double end_of_backward(int stage, int micro_batch) const {
    return std::min(end_of({What::backward, stage, micro_batch}), end_of({What::input_gradient, stage, micro_batch}));
  }

  /// When all that an action needs from elsewhere is there.
  double ready(const Action& action) const {
    const auto [what, stage, micro_batch] = action;
    const int last = program_.num_stages() - 1;
    const auto merged = [&, i = micro_batch] { return end_of({What::receive_scores, program_.home(), i}); };
    if (what == What::scores) return end_of({What::forward, last, micro_batch});
    if (what == What::receive_scores) {
      double all = 0;
      for (int rank = 0; rank < program_.num_ranks(); ++rank)
        all = std::max(all, end_of({What::scores, rank, micro_batch}));
      return all;
    }
    if (what == What::class_gradient) return merged();
    if (what == What::forward) return stage == 0 ? 0 : end_of({What::forward, stage - 1, micro_batch});
    if (what == What::weight_gradient) return 0;  // after its other half, on the same rank
    return stage == last ? merged() : end_of_backward(stage + 1, micro_batch);
  }

  double length_of(const Action& action) const {
    const auto& cost = costs_[is_of_head(action.what) ? 0 : action.stage];
    switch (action.what) {
      case What::scores:
        return head_.scores;
      case What::class_gradient:
        return head_.class_gradient;
      case What::backward:
        return cost.backward();
      case What::receive_scores:
        return 0;
      default:
        return cost.forward;  // and of a half of backward
    }
  }

  void take(const Next& next) {
    auto& own = ranks_[next.rank];
    own.now = next.begin + length_of(next.action);
    ends_[next.action] = own.now;
    own.done.push_back(next.action);
    switch (next.action.what) {
      case What::scores:
        ++own.scored;
        break;
      case What::receive_scores:
        ++own.merged;
        break;
      case What::class_gradient:
        ++own.ended;
        break;
      default:
        ++own.place;
    }
  }

  const Program& program_;
  std::vector<StageCost> costs_;
  HeadCost head_;
  std::vector<Rank> ranks_;
  std::map<Action, double> ends_;
};

}  // namespace

Program divide_head(Program program, double product) {
  program.lists = Divide(program, product).run();
  return program;
}

}  // namespace tandem::pipeline
