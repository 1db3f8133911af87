#include "tandem/train/detail/votes.h"

#include <memory>

namespace tandem::train::detail {

Votes::~Votes() {
  for (const auto& vote : votes_) vote.wait();
}

void Votes::cast(bool stop, std::optional<int64_t> own_fault) {
  auto result = std::make_shared<std::promise<StepVote>>();
  votes_.push_back(result->get_future());
  if (late_ == 0) return result->set_value(agree(stop, own_fault, world_));
  auto& group = world_.beside();
  group.queue([=, &group] {
    try {
      result->set_value(agree(stop, own_fault, group));
    } catch (...) {
      result->set_exception(std::current_exception());
    }
  });
}

StepVote Votes::count() {
  auto oldest = std::move(votes_.front());
  votes_.pop_front();
  return oldest.get();
}

}  // namespace tandem::train::detail
