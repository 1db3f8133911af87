#pragma once
#include <deque>
#include <future>

#include "tandem/comm/process_group.h"
#include "tandem/train/detail/divergence.h"

namespace tandem::train::detail {

/// What the ranks agree on at the ends of steps, in the order of the steps. Where ranks do not wait for each other in
/// each step, the votes travel on a thread of `world`, and are counted some steps later.
class Votes {
 public:
  /// `late`: steps from the cast of a vote to its count. `world` must outlive this object.
  Votes(comm::ProcessGroup& world, int64_t late) : world_(world), late_(late) {}
  ~Votes();  // waits for those that travel
  Votes(const Votes&) = delete;
  Votes& operator=(const Votes&) = delete;

  /// Collective, in the same order on all ranks; with `late` 0 it waits for them.
  void cast(bool stop, std::optional<int64_t> own_fault);

  bool is_due() const { return static_cast<int64_t>(votes_.size()) > late_; }
  bool is_empty() const { return votes_.empty(); }

  /// The oldest vote, the same on all ranks. Waits for it. Throws what it has thrown.
  StepVote count();

 private:
  comm::ProcessGroup& world_;
  int64_t late_;
  std::deque<std::future<StepVote>> votes_;
};

}  // namespace tandem::train::detail
