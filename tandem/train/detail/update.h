#pragma once
#include <optional>
#include <vector>

#include "tandem/memory/rehearsal.h"
#include "tandem/parallel/gradient_sync.h"
#include "tandem/train/detail/gradient_norm.h"
#include "tandem/train/detail/row_hooks.h"
#include "tandem/train/detail/weight_average.h"
#include "tandem/train/loss_scale.h"
#include "tandem/train/optimizer.h"
#include "tandem/train/step.h"
#include "tandem/train/task.h"

namespace tandem::train::detail {

struct UpdateOptions {
  OptimizerOptions optimizer;
  double clip = 0;
  double ema = 0;         // decay of the weights' averages; 0: none
  bool in_order = false;  // no bit of the norm depends on the ranks
  std::optional<LossScaleOptions> loss_scale;
  bool ends_late = false;  // on another thread, where no step can be undone
};

/// What a step does when its gradients are there: it checks loss and gradients, leaves the step out or clips, and
/// updates the weights and their averages. The device is waited for once.
class Update {
 public:
  /// `trained`: as this rank holds them. `all`: the ranks that train together; `model`: of them, those that share out
  /// the model. Everything must outlive this object. Throws SettingsError: options that want all gradients of a step,
  /// with a parameter that is updated by rows in backward; averages of rows that move late; options of the optimizer,
  /// of the averages or of the scale.
  Update(Task& task, parallel::GradientSync& sync, const std::vector<Parameter>& trained, comm::ProcessGroup& all,
         comm::ProcessGroup& model, const UpdateOptions& options);

  /// The terms of a step's loss are those of a rank of this group, and their sum over the group is the loss.
  void sum_loss_over(comm::ProcessGroup& group) { summed_ = &group; }

  void allow_skips(int64_t in_a_row);
  bool may_leave_out() const { return may_skip_; }

  /// The factor of the loss in backward.
  double scale() const { return scale_ ? scale_->scale() : 1; }

  /// A step, from before its forward on: what it must not lose.
  class Begun {
   public:
    Begun(Update& update, double learning_rate);

    StepNumbers numbers;  // to which the passes add the terms of the loss

   private:
    friend class Update;

    double learning_rate_;
    RowHooks hooks_;
    std::vector<Tensor> buffers_;  // copies, of a step that may be left out
  };

  /// `shares`: as Passes::run() returns them. `step` counts from 0. Collective.
  Reading end(Begun& begun, const std::vector<double>& shares, int64_t step);

  /// What end() allocates for a moment, and between. `rows`: see Passes::Update.
  std::vector<memory::Change> bytes(const std::vector<int64_t>& rows) const;
  int64_t bytes_of_copies() const;

  Optimizer& optimizer() { return optimizer_; }
  const Optimizer& optimizer() const { return optimizer_; }
  const std::optional<LossScale>& loss_scale() const { return scale_; }
  std::optional<WeightAverage>& average() { return average_; }
  const std::optional<WeightAverage>& average() const { return average_; }
  void set_numbers(const storage::Fields& numbers);

 private:
  NormSum norm_sum() const { return options_.in_order ? NormSum::exactly : NormSum::quickly; }
  struct ClippedTogether {
    std::vector<Parameter> parameters;
    comm::ProcessGroup* group;
    NormSum sum;
    parallel::Axes along;
  };
  std::vector<ClippedTogether> clipped() const;
  std::vector<GradientNorm> start_norms(StepNumbers& numbers);
  std::optional<Reading> leave_out(const Begun& begun, double loss, std::optional<int64_t> fault, int64_t step);
  Reading skip(const NonFiniteError& fault, const Begun& begun);
  void undo(const Begun& begun);

  Task& task_;
  parallel::GradientSync& sync_;
  const std::vector<Parameter>& trained_;
  comm::ProcessGroup &all_, &model_;
  comm::ProcessGroup* summed_ = nullptr;  // the ranks over which a loss is summed; null: it is equal on all
  UpdateOptions options_;
  Optimizer optimizer_;
  std::optional<LossScale> scale_;
  std::optional<WeightAverage> average_;
  bool may_skip_ = false;
};

/// Throws SettingsError if an option is set that needs more of a step than is known before a parameter of it changes.
void check_rows(bool is_set, const std::string& option, const std::string& why);

}  // namespace tandem::train::detail
