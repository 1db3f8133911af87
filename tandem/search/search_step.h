#pragma once
#include <memory>
#include <optional>

#include "tandem/data/loader.h"
#include "tandem/models/genotype.h"
#include "tandem/models/search_method.h"
#include "tandem/models/space.h"
#include "tandem/search/architect.h"
#include "tandem/search/collapse_guard.h"
#include "tandem/train/optimizer.h"
#include "tandem/train/supervised_step.h"

namespace tandem::search {

struct SearchStepOptions {
  std::string method = "darts";                         // that of the model: one of models::search_methods()
  ArchitectOptions architect;                           // its accumulate and shards: those of `weights`
  train::OptimizerOptions alphas = alphas_optimizer();  // of the alphas
  double alphas_rate = 3e-4;                            // their learning rate, in all steps
  train::SupervisedStepOptions weights;                 // SGD with order 2
  std::optional<GuardOptions> guard = {};               // nullopt: nobody looks for collapse

  /// Adam of betas 0.5 and 0.999, weight decay 1e-3 added to the gradient.
  static train::OptimizerOptions alphas_optimizer();
};

/// A step of a search: it moves the alphas by a batch of validation images (Architect), then the weights by the batch
/// of training images (train::SupervisedStep).
///
///   validation ──▶ Architect ──▶ gradient of the alphas ──▶ Adam ──▶ alphas
///   training   ──▶    │                                                │
///        └────────────┴──▶ SupervisedStep, with the new alphas ──▶ weights
///
/// Memory: a batch of validation images; alphas count little. Step t reads the same batch of the validation loader in
/// every run, whatever was resumed. All ranks hold the same alphas and weights; unify() compares a hash of the alphas
/// over the ranks. A step whose validation loss or gradient is not finite, or whose training step is skipped, changes
/// neither alphas nor weights.
class SearchStep : public train::Step {
 public:
  /// `space`: of the task's alphas. Task and mesh must outlive this object. Collective. Throws c10::ValueError: alphas
  /// of another space or method; SettingsError: a strategy of which a rank holds a part, or whose ranks train apart;
  /// order 2 without SGD, or with weight decay of some parameters only.
  SearchStep(train::Task& task, const models::Space& space, SearchStepOptions options, parallel::Mesh& mesh);

  /// Validation images: a loader like the training loader, with the same parts and batch, over other images. It must
  /// outlive this object. Without one the training images stand for them.
  void read_from(data::Loader& validation) { validation_ = &validation; }

  /// Before this step, counted from 0, the alphas stay as they are.
  void move_alphas_from(int64_t step) { first_step_ = step; }

  void allow_skips(int64_t in_a_row) override { weights_.allow_skips(in_a_row); }
  std::optional<train::Reading> run(const data::Batch& batch, int64_t step, double learning_rate) override;
  memory::Composition rehearse(const data::Batch& batch, memory::Account held) override;
  std::vector<Blocks> rehearse_blocks(const data::Batch& batch, bool in_parts = false) override {
    return weights_.rehearse_blocks(batch, in_parts);
  }
  void settle() override { weights_.settle(); }

  /// Besides, throws c10::DistError if the ranks' alphas have come apart.
  void unify() override;

  std::vector<train::Parameter> weights() const override { return weights_.weights(); }
  std::vector<train::Parameter> state() const override;
  storage::Fields numbers() const override;
  void set_numbers(const storage::Fields& numbers) override;
  train::Facts facts() const override;

  /// Of the model with all operations. Remembers the alphas of the best accuracy. With a guard there is one more score,
  /// "eigenvalue": the largest one of the Hessian of the last validation batch's loss in the alphas, in some twenty
  /// passes.
  train::Scores evaluate(data::Loader& loader, const train::Tick& tick, const train::Answered& answered) override;

  /// After how many steps the guard has set the alphas back; nullopt if it has not.
  std::optional<int64_t> guard_step() const { return guard_ ? guard_->acted_at() : std::nullopt; }

  const models::Space& space() const { return space_; }

  /// The shares of the operations, [edges, operations] of each kind of cell.
  std::vector<Tensor> shares() const;

  /// What the alphas stand for now; with `best`, after the test with the best accuracy so far.
  models::Cells cells(bool best = false) const;

  /// The same as a text, from which a model can be made.
  std::string genotype(bool best = false) const { return space_.skeleton->text(cells(best)); }

  /// One hash of the alphas, equal for equal bits. On rank 0; "" on the others. Collective.
  std::string alphas_hash();

  Architect& architect() { return architect_; }

 private:
  struct Undo;

  void check_alphas() const;
  VirtualStep virtual_step(double learning_rate) const;
  const data::Batch& validation_batch(const data::Batch& training, int64_t step);
  double hessian_eigenvalue();
  std::optional<NonFiniteError> move_alphas(const data::Batch& batch, int64_t step, double learning_rate);

  train::Task& task_;
  models::Space space_;
  models::SearchMethod method_;
  SearchStepOptions options_;
  data::Loader* validation_ = nullptr;
  int64_t first_step_ = 0;
  parallel::Mesh& mesh_;
  Architect architect_;  // before the weights' step: it takes the alphas away from it
  train::SupervisedStep weights_;
  train::Optimizer alphas_;
  std::optional<CollapseGuard> guard_;
  int64_t step_ = 0;  // the last
  std::vector<Tensor> best_alphas_;
  double best_accuracy_ = -1;     // below 0: there was no test
  double loss_ = 0;               // of the last validation batch
  std::vector<Tensor> velocity_;  // of the weights' optimizer
  data::Batch batch_;
  int64_t next_batch_ = -1;  // of the validation loader, counted over all epochs
};

}  // namespace tandem::search
