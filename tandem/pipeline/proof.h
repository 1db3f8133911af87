#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/pipeline/program.h"

namespace tandem::pipeline {

/// A program that would not run, or not do its work.
struct ProgramError : SettingsError {
  using SettingsError::SettingsError;
};

/// The most of something that a rank holds at any moment of a step, counted in stages of a micro-batch.
struct MostHeld {
  int graphs = 0;       // from a forward to its backward, or to its input gradient
  int weight_work = 0;  // from an input gradient to its weight gradient: a stage's inputs and gradients
  int both = 0;
  int scores = 0;    // of a divided classifier, from a rank's scores to its class gradient: the features
  int inputs = 0;    // that were received, and whose forward has not run; likewise gradients
  int messages = 0;  // that this rank has sent and whose receivers may not have begun to wait, at the worst
};

struct ProofOptions {
  /// A send ends only when its receiver has come to the receive, as where messages have no buffers.
  bool sends_wait = false;
  int most_held = std::numeric_limits<int>::max();  // stages of a micro-batch on a rank: MostHeld::both
};

/// Proves, without a rank, that a program does a whole step and ends, at whatever speed ranks and messages go:
///
///   - each stage runs each micro-batch once, forward before backward, input gradient before weight gradient, with all
///     that it needs made or received before, on the same rank; and likewise each part of a divided classifier;
///   - each message is sent once, after it was made, and received once, before it is used: by one rank, or of a divided
///     classifier by all others, or from all others;
///   - no ranks wait for each other in a circle: as a receive names its message, and sends do not wait, the order in
///     which ranks really run changes nothing, so one order of all actions proves it for all;
///   - no rank ever holds more than `most_held`.
///
/// Returns what each rank holds at most. Throws ProgramError, which names the action and its list; where ranks would
/// wait in a circle, each rank and what it waits for.
std::vector<MostHeld> prove(const Program& program, const ProofOptions& options = {});

/// Of each action of a rank's list: the sends before it, as places in the list, whose receivers must have come to them
/// when it has ended, and not yet when the one before had. What they sent may then be freed. The program must be one
/// that prove() accepts.
std::vector<std::vector<size_t>> receipts_of(const Program& program, int rank);

}  // namespace tandem::pipeline
