#pragma once
#include <memory>

#include "tandem/classifier/class_sharded_head.h"
#include "tandem/models/backbone.h"
#include "tandem/train/supervised_step.h"
#include "tandem/train/trainer.h"
#include "tests/data/patterns.h"

namespace tandem::train {

using test::Patterns;

/// What a test trains, and how.
struct Recipe {
  std::string model = "mlp";
  int64_t embedding = 16;
  classifier::HeadOptions head = {.scoring = classifier::cosface(24, 0.2)};  // classes and dim are filled in
  bool is_whole = false;                                                     // the head, on each rank
  bool steps_in_backward = false, moves_all_rows = false;                    // of its weight
  OptimizerOptions optimizer;
  double lr = 0.05, clip = 0;
  bool is_tested = true;  // at the end of each epoch
};

/// A backbone on every rank with a head that is split over them, or whole on each.
class ClassifierTask : public Task {
 public:
  ClassifierTask(const Recipe& recipe, comm::ProcessGroup& group);

  void begin_step(int64_t step) override { head_->set_step(step); }
  Tensor loss(const data::Batch& batch, std::span<const int64_t> sizes) override {
    return head_->loss(embed_with_gradient(batch), batch.labels, sizes);
  }
  Tensor embed(const data::Batch& batch) override { return embed_with_gradient(batch).detach(); }
  Answers evaluate(const data::Batch& batch, int64_t k, std::span<const int64_t> sizes) override {
    const auto features = embed_with_gradient(batch);
    return {head_->top_k(features, k, sizes), head_->loss(features, batch.labels, sizes)};
  }
  void run_apart() override {
    head_->run_apart();
    is_apart_ = true;
  }
  parallel::Axes summed_along() const override { return is_apart_ ? parallel::kBatchAxes : parallel::Axes(); }
  void set_training(bool training) override {
    backbone_->train(training);
    head_->set_training(training);
  }
  memory::Chain* replicated_chain() override { return &backbone_->chain(); }
  std::vector<Parameter> parameters() const override;
  std::vector<Parameter> buffers() const override { return buffers_of(*backbone_); }
  std::optional<RowParameter> row_parameter() const override;
  void set_row_hooks(RowUpdate update, RowsRead read) override {
    head_->set_row_update(std::move(update));
    head_->set_rows_read(std::move(read));
  }

 private:
  Tensor embed_with_gradient(const data::Batch& batch) {
    return backbone_->forward(batch.images.to(recipe_.head.dtype));
  }

  Recipe recipe_;
  bool is_apart_ = false;
  std::shared_ptr<models::Backbone> backbone_;
  std::unique_ptr<classifier::Head> head_;
};

}  // namespace tandem::train
