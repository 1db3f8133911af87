#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/job/detail/part_costs.h"
#include "tandem/pipeline/simulation.h"

namespace tandem::job {

/// How fast messages travel between ranks.
struct Link {
  double latency = 20e-6;  // seconds
  double bytes_per_second = 4e9;
  double hidden = 0.7;  // of its seconds, behind computing: those in which no core copies

  double seconds(double bytes, double messages = 1) const { return messages * latency + bytes / bytes_per_second; }
};

/// What joins the ranks: those of one host in rank order, and hosts.
struct Links {
  Link inside = {.hidden = 0}, between;
  int ranks_of_host = 1 << 20;
};

/// What a step of a job takes, without running it, on the slowest of its ranks.
struct StepEstimate {
  double seconds = 0;
  int64_t peak_bytes = 0;                   // about
  int worst = 0;                            // the coordinate along pipeline with the most bytes
  std::vector<pipeline::StageCost> stages;  // what they take
  double after = 0;                         // seconds of the slowest rank after its backward
  std::vector<std::string> cut = {};        // with what the stages but the first begin, as pipeline.cut has it
};

/// Estimates steps of one job under many plans: what parts of the model take (part_costs.h), the program of a pipeline
/// (pipeline::simulate()), and what travels along the axes of the mesh, as far as no computing hides it. Costs of parts
/// are kept for each number of images and of ranks along tensor.
class PlanEstimate {
 public:
  /// On a nominal core, with nominal links.
  explicit PlanEstimate(const DataShape& shape) : shape_(shape) {}

  /// Measures the links, once, and what parts take in jobs of as many ranks along tensor and images of a micro-batch as
  /// this one: on all ranks of the group at the same time, as in a step. The slowest counts. Only rank 0 knows the
  /// links. Throws SettingsError, on all ranks, if a part cannot run. Collective.
  void measure(const Job& job, comm::ProcessGroup& group);

  const DataShape& shape() const { return shape_; }

  /// `job`: of one plan. Throws SettingsError as plan_stages() does. Not collective.
  StepEstimate of(const Job& job);

  /// No plan of so many ranks can be faster: all of the work of a batch, divided evenly, with nothing sent.
  double lower_bound(const Job& job);

 private:
  struct Stage {
    pipeline::StageCost cost = {.forward = 0, .input_gradient = 0, .weight_gradient = 0};
    int64_t weights = 0, largest_block = 0, workspace = 0;
    int blocks = 0;
    std::string first;  // part
  };

  struct RankEstimate {
    int64_t bytes = 0;
    double seconds = 0;  // after backward
  };

  using Key = std::pair<int, int64_t>;  // ranks along tensor, images of a micro-batch

  static Key key_of(const Job& job);
  std::vector<PartCost> find_costs(const Job& job, CutBy by) const;
  std::pair<std::vector<PartCost>, Tensor> measured_costs(const Job& job) const;
  const std::vector<PartCost>& costs_of(const Job& job);
  std::vector<Stage> stages_of(const Job& job);
  Stage stage_of(const Job& job, std::span<const PartCost> parts) const;
  RankEstimate rank_of(const Job& job, const std::vector<Stage>& own, bool has_head) const;
  Link link_along(const Job& job, parallel::Axes axes) const;
  double sync_seconds(const Job& job, const std::vector<Stage>& own) const;
  double update_seconds(const Job& job, int64_t updated) const;

  DataShape shape_;
  Links links_;
  double memory_rate_ = 8e9;  // bytes a second that a rank reads or writes while all do
  bool is_measured_ = false;  // how fast bytes are
  std::map<Key, std::vector<PartCost>> costs_;
};

}  // namespace tandem::job
