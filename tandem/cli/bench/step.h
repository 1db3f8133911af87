#pragma once
#include "tandem/cli/command.h"

namespace tandem::cli {

/// `tandem bench step [alone] SETTINGS`: takes steps of a training job on noise when it is told to, so that others can
/// be timed in turn with it. Rank 0 reads from stdin and answers on stdout, a line each:
///
///   (start)        {"peak_bytes": of the rank that has most, "wire_bytes": of all ranks, "ranks": N} of one step
///   K              the seconds of each of K steps, separated by spaces
///   costs          {"stages": [{"forward", "input_gradient", "weight_gradient"}], "update"} of a pipeline: the seconds
///                  of each stage of the model for a micro-batch, and the most that a rank takes for its update, while
///                  all ranks compute and nothing is sent
///
/// and ends with its input. With the word `alone` beside the settings each rank works out its part and sends nothing,
/// as if the others had sent what it has itself: what a step costs without its messages. It runs under a launcher as
/// `tandem train` does.
int run_step(const Arguments& arguments);

}  // namespace tandem::cli
