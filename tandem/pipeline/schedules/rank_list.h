#pragma once
#include <algorithm>
#include <map>
#include <vector>

#include "tandem/pipeline/schedule.h"

namespace tandem::pipeline {

/// The list of one rank in the making. Each kind of work runs a stage's micro-batches in their order, so an action is
/// known by its kind and its stage.
class RankList {
 public:
  explicit RankList(int micro_batches) : micro_batches_(micro_batches) {}

  /// The next micro-batch of that stage; nothing if all have been.
  void add(What what, int stage) {
    auto& count = counts_[{what, stage, 0}];
    if (count == micro_batches_) return;
    list_.push_back({what, stage, count++});
  }
  int count(What what, int stage) const {
    const auto at = counts_.find({what, stage, 0});
    return at == counts_.end() ? 0 : at->second;
  }

  std::vector<Action> take() { return std::move(list_); }

 private:
  int micro_batches_;
  std::map<Action, int> counts_;
  std::vector<Action> list_;
};

/// Chunk c of rank r is stage c * ranks + r:
///
///   rank    0  1  2  3
///   stage   0  1  2  3
///           4  5  6  7
std::vector<int> linear_stages(int ranks, int chunks);

/// Two chunks a rank, down and up again:
///
///   rank    0  1  2  3
///   stage   0  1  2  3
///           7  6  5  4
std::vector<int> v_stages(int ranks);

/// Fits the passes of a divided classifier into lists without messages, whose order stays: ScheduleSize::head. By a
/// simulation in which a rank does, whenever it is free, the first of these that is ready: the scores of the next
/// micro-batch, the next action of its list, a class gradient. The home takes all scores of a micro-batch when they are
/// there. As no rank waits for another but where it needs what that one makes, this is faster than passes that all
/// ranks begin together.
Program divide_head(Program program, double product);

/// The schedules.
Program make_gpipe(const ScheduleSize& size);
Program make_one_f_one_b(const ScheduleSize& size);
Program make_interleaved(const ScheduleSize& size);
Program make_zero_bubble_h1(const ScheduleSize& size);
Program make_zero_bubble_h2(const ScheduleSize& size);
Program make_zero_bubble_v(const ScheduleSize& size);
Program make_v_half(const ScheduleSize& size);
Program make_v_min(const ScheduleSize& size);
Program make_v_held(const ScheduleSize& size);
Program make_inference(const ScheduleSize& size);

}  // namespace tandem::pipeline
