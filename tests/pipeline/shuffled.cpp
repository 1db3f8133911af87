#include "tests/pipeline/shuffled.h"

#include "tandem/pipeline/schedule.h"

namespace tandem::pipeline {

Program shuffled(Program program, std::mt19937& random) {
  const auto may_swap = [](const Action& first, const Action& second) {
    if (first.micro_batch != second.micro_batch) return true;
    if (first.what == What::receive_scores && second.what == What::send_totals) return false;
    return is_message(first.what) && is_message(second.what);
  };
  const auto swaps = random() % 200;
  for (unsigned i = 0; i < swaps; ++i) {
    auto& list = program.lists[random() % program.lists.size()];
    const auto at = random() % (list.size() - 1);
    if (may_swap(list[at], list[at + 1])) std::swap(list[at], list[at + 1]);
  }
  return program;
}

Program random_program(std::mt19937& random, std::optional<double> head) {
  const auto& schedule = schedules()[random() % schedules().size()];
  const int ranks = 2 + static_cast<int>(random() % 3), micro_batches = ranks * (1 + static_cast<int>(random() % 2));
  return shuffled(make_program(schedule, {.ranks = ranks, .micro_batches = micro_batches, .head = head}), random);
}

}  // namespace tandem::pipeline
