#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "tandem/pipeline/program.h"

namespace tandem::pipeline {

struct ScheduleSize {
  int ranks = 1, micro_batches = 1;
  int chunks = 2;  // stages of each rank, for a schedule that leaves the choice
  int held = 0;    // graphs of stages that a rank may hold at once, likewise; 0: as few as can be
  /// The classes of the classifier are divided over all ranks. As the passes' length decides their best order: what
  /// each of its four products would take on one rank, where each of the three actions of a rank takes 1.
  std::optional<double> head = {};
};

/// A way to order the work of a pipeline's ranks. One file of schedules/ each, one row of schedules().
struct Schedule {
  std::string_view name, doc;
  int chunks = 1;          // stages of each rank; 0: as ScheduleSize has it
  bool goes_back = false;  // the second stages lie in the opposite order: the first rank also has the last one
  bool has_backward = true;
  bool takes_held = false;  // ScheduleSize::held
  Program (*make)(const ScheduleSize& size) = nullptr;

  int chunks_of(const ScheduleSize& size) const { return chunks > 0 ? chunks : size.chunks; }

  /// The rank of each stage, in the order of the model.
  std::vector<int> rank_of(const ScheduleSize& size) const;
};

std::span<const Schedule> schedules();

/// Throws SettingsError, naming `schedule`, if there is none of that name.
const Schedule& schedule_of(std::string_view name);

/// The fewest graphs of stages, two stages a rank, with which any schedule can do: ScheduleSize::held.
int least_held(int ranks);

/// The program of a schedule, with messages. Where the classifier is divided, each rank scores a micro-batch as soon as
/// its features are there, and works out class gradients where it would wait, and in the end; with gpipe, all between
/// forwards and backwards. Throws SettingsError, naming `micro_batches`, if the schedule cannot order
/// so many. `held` must be 0 or at least least_held().
Program make_program(const Schedule& schedule, const ScheduleSize& size);

/// Forwards alone, over stages that lie as `rank_of` says: each rank runs the latest of its stages that has its input.
/// With messages.
Program inference_program(std::vector<int> rank_of, int micro_batches);

}  // namespace tandem::pipeline
