#pragma once
#include <span>
#include <string>
#include <vector>

#include "tandem/pipeline/program.h"

namespace tandem::pipeline {

/// What a stage takes for one micro-batch, in seconds or any other unit.
struct StageCost {
  double forward = 1, input_gradient = 1, weight_gradient = 1;
  double output_message = 0, gradient_message = 0;  // from a send to when its receiver has it
  // Held from a forward to its backward or input gradient, and from there to its weight gradient.
  int64_t graph_bytes = 0, weight_work_bytes = 0;

  double backward() const { return input_gradient + weight_gradient; }
};

/// What a rank's part of a divided classifier takes for one micro-batch.
struct HeadCost {
  double scores = 0, class_gradient = 0;
  double message = 0;      // from any send to when its receiver has it
  int64_t kept_bytes = 0;  // held from the scores to the class gradient

  /// Of the classifier's four products, of which each would take `product` on one rank: two each on all ranks.
  static HeadCost even(double product, int ranks) { return {2 * product / ranks, 2 * product / ranks}; }
};

/// Each stage of a program whose ranks have `chunks` stages each takes its part of a rank's cost.
std::vector<StageCost> even_costs(const Program& program, const StageCost& of_rank);

/// An action, and when it runs. A receive begins when the rank comes to it, and ends when the message is there.
struct Timed {
  Action action;
  double begin = 0, end = 0;
  int64_t bytes = 0;  // that the rank holds at its end; 0: not known
};

/// A step as it would run on ranks that begin together.
struct Simulation {
  struct Rank {
    std::vector<Timed> actions;
    double busy = 0;         // in which it computes
    double span = 0;         // from its own first computing to its own last
    int64_t peak_bytes = 0;  // the most of Timed::bytes, of graphs, late weight gradients and kept features
  };
  std::vector<Rank> ranks;
  double makespan = 0;  // from the first action of any rank to the last of any
  double bubble = 0;    // the part of all ranks' time between these in which they do not compute
};

/// `costs`: of each stage. `head`: of the parts of a divided classifier. Sends and the waiting ranks take no time of
/// their own. The program must be one that prove() accepts; another may throw c10::ValueError.
Simulation simulate(const Program& program, std::span<const StageCost> costs, const HeadCost& head = {});

/// The computing of a simulation as a table of a line a rank: what each does in each unit of time. The second stage of
/// a rank is marked ', the third ". A number of units that is no whole one is rounded. Lines break after `columns`.
///
///          0  1  2  3  4  5  6  7  8  9  10
///   rank 0 F0 F1 F2 .  B0 B0 B1 B1 B2 B2
///   rank 1    F0 F1 F2 ...
std::string clock_table(const Program& program, const Simulation& simulation, double unit, int columns = 110);

}  // namespace tandem::pipeline
