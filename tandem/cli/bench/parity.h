#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tandem/settings/schema.h"

namespace tandem::cli {

struct Arguments;

struct ParityBench {
  int most_ranks = 5;
  int64_t batch = 23, steps = 10;  // the ranks have unequal parts of the batch
  std::vector<int64_t> accumulate = {1, 3};
  std::vector<std::string> recompute = {"none", "log"};
};

/// Of a search and of a vision transformer, whose steps take long.
inline constexpr int64_t kParitySlowSteps = 3;

struct ParityNumbers {
  double loss = 0;      // of all steps
  double gradient = 0;  // of the first step
  double weight = 0;    // after the last step
};

/// A plan on so many ranks, and what it differs by.
struct ParityCase {
  std::string parallel;           // as the setting spells it
  std::vector<std::string> more;  // other settings of the plan, such as "mesh.tensor=2"
  int ranks = 0;
  int64_t accumulate = 0;
  std::string recompute;
  ParityNumbers largest;     // absolute values on one device, to judge the difference by
  ParityNumbers difference;  // from one device, the greatest absolute ones
  std::string parts;         // where it parts from one device, of plans that differ by more than rounding
};

/// Of the largest number: what rounding may differ by.
inline constexpr double kParityRounding = 1e-12;

struct ParityResult {
  ParityNumbers largest;  // of the first model on one device
  double moved = 0;       // the largest change of a weight
  std::vector<ParityCase> cases;
};

/// Trains a small job in float64 with each strategy, set so that its ranks meet in every step, and with ranks along
/// other axes of a mesh, on 1 to `most_ranks` ranks (those of the smallest mesh if that is larger) and with each number
/// of micro-batches, and compares it with the same training written plainly on one device: autograd of the whole batch,
/// cross entropy of whole logits, SGD with momentum; and a search, whose alphas go among the weights. The models have
/// no batch statistics; the head's classes are split, but in a search.
ParityResult bench_parity(const ParityBench& bench);

/// Where a plan parts from one device: the first step and block. "" if its blocks do not.
std::string where_it_parts(const ParityBench& bench, const ParityCase& plan);

/// `tandem bench parity`: prints the differences, and writes them as a page of the documentation if asked.
int run_parity(const Arguments& arguments);
settings::Schema parity_schema();

}  // namespace tandem::cli
