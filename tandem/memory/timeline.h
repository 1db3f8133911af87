#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "tandem/base/category.h"
#include "tandem/memory/meter.h"

namespace tandem::memory {

/// What a rank holds after an event of a step.
struct Moment {
  double seconds = 0;  // since the step's first event
  CategoryBytes live{};
  int block = 0;  // of the newest storage
  Phase phase = Phase::forward;
};

/// One step of a rank, event by event.
///
///   live     ▁▃▅▆▇█▇▆▅▃▁
///   phase    forward │ backward │ optimizer
///                    saved
struct Timeline {
  std::vector<Moment> moments;
  size_t peak = 0;          // index of the moment with most bytes; the first of several
  CategoryBytes highest{};  // the most bytes of each category, each at its own moment
  Account account;          // live: when backward begins (with several micro-batches, when most is saved); at_peak
};

/// `events`: of one rank, from an EventLog that began when the rank held `held`, until the end of `step`. A storage has
/// its last category and block for its whole life, as in the rank's account: a gradient is a gradient from its birth.
/// Storages that are older than the log stay in `held`. What follows the last event of backward or of the optimizer,
/// such as the end of the batch, belongs to the optimizer's phase.
Timeline timeline_of(std::span<const Event> events, int64_t step, const Account& held = {});

}  // namespace tandem::memory
