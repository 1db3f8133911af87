#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tandem/job/detail/part_costs.h"
#include "tandem/pipeline/simulation.h"

namespace tandem::job {

/// How fast messages travel between ranks.
struct Link {
  double latency = 20e-6;  // seconds
  double bytes_per_second = 4e9;

  double seconds(double bytes, double messages = 1) const { return messages * latency + bytes / bytes_per_second; }
};

/// What joins the ranks: those of one host in rank order, and hosts.
struct Links {
  Link inside, between;
  int ranks_of_host = 1 << 20;
};

/// What a step of a job takes, without running it, on the slowest of its ranks.
struct StepEstimate {
  double seconds = 0;
  int64_t peak_bytes = 0;             // about
  int worst = 0;                      // the coordinate along pipeline with the most bytes
  std::vector<std::string> cut = {};  // with what the stages but the first begin, as pipeline.cut has it
};

/// Estimates steps of one job under many plans: what parts of the model take (part_costs.h), the program of a pipeline
/// (pipeline::simulate()), and what travels along the axes of the mesh, as far as no computing hides it. Costs of parts
/// are kept for each number of images and of ranks along tensor.
class PlanEstimate {
 public:
  PlanEstimate(const DataShape& shape, CutBy by, const Links& links) : shape_(shape), by_(by), links_(links) {}

  /// `job`: of one plan. Throws SettingsError as plan_stages() does. Not collective.
  StepEstimate of(const Job& job);

  /// No plan of so many ranks can be faster: all of the work of a batch, divided evenly, with nothing sent.
  double lower_bound(const Job& job);

 private:
  struct Stage {
    pipeline::StageCost cost = {.forward = 0, .input_gradient = 0, .weight_gradient = 0};
    int64_t weights = 0, largest_block = 0, workspace = 0;
    std::string first;  // part
  };

  struct RankEstimate {
    int64_t bytes = 0;
    double seconds = 0;  // after backward
  };

  const std::vector<PartCost>& costs_of(const Job& job);
  std::vector<Stage> stages_of(const Job& job);
  Stage stage_of(const Job& job, std::span<const PartCost> parts) const;
  RankEstimate rank_of(const Job& job, const std::vector<Stage>& own, bool has_head) const;
  Link link_along(const Job& job, parallel::Axes axes) const;
  double sync_seconds(const Job& job, int64_t weights, double hiding) const;

  DataShape shape_;
  CutBy by_;
  Links links_;
  std::map<std::pair<int, int64_t>, std::vector<PartCost>> costs_;  // by ranks along tensor, images
};

}  // namespace tandem::job
