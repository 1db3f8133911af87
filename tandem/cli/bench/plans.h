#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tandem/cli/command.h"

namespace tandem::cli {

/// The plans that the search of parallel=auto puts first within some limits of bytes, each taking its steps in turn:
/// how near the chosen one is to the best of them, and to its own prediction. Steps are those of the real job, on
/// thread-ranks of one thread each, for which there must be as many cores; or those of stages that sleep for what the
/// search has measured, and for what follows their backward.
struct PlansBench {
  std::vector<std::string> models;
  std::string mode;            // steps, delays
  std::vector<int64_t> ranks;  // a case each
  std::vector<double> limits;  // from 0, the least bytes of the front, to 1, those of the fastest plan; a case each
  int64_t plans = 6;           // of a case
  int64_t batch = 32, size = 32, classes = 100;
  int64_t rounds = 5, steps = 3;      // steps of each plan in a round
  double slower = 5;                  // delays are so many times as long, and told as if they were not
  std::vector<std::string> settings;  // more of the job
};

struct TimedPlan {
  std::string text;
  double predicted_seconds = 0, seconds = 0;  // of a step; measured: the median over the rounds of a round's median
  int64_t predicted_bytes = 0;                // of the rank that has most
  std::optional<int64_t> bytes;               // measured; with delays of the chosen plan alone
};

struct PlansCase {
  std::string model;
  int64_t ranks = 0;
  int64_t limit = 0;             // bytes of a rank
  double lower_bound = 0;        // seconds that no plan can be faster than
  std::vector<TimedPlan> plans;  // as the search puts them: the first is the chosen one
  double of_best = 0;            // the chosen plan's time, divided by the least of all

  double gap() const { return plans.front().predicted_seconds / lower_bound - 1; }
};

/// Throws IoError if a job does not start.
std::vector<PlansCase> bench_plans(const PlansBench& bench);

/// `tandem bench plans`: reads its settings, prints and writes the result.
int run_plans(const Arguments& arguments);
settings::Schema plans_schema();

}  // namespace tandem::cli
