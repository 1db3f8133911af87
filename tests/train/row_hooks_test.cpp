#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/data/synthetic.h"
#include "tandem/train/supervised_step.h"
#include "tandem/train/trainer.h"

namespace tandem::train {
namespace {

constexpr int64_t kClasses = 4, kPixels = 3;

/// One weight whose rows are updated in backward, by the hooks that the trainer gives.
class Rowwise : public Task {
 public:
  Tensor loss(const data::Batch& batch, std::span<const int64_t>) override {
    EXPECT_TRUE(update_ && read_);
    if (fails_) throw std::runtime_error("no loss");
    read_({.begin = 0, .count = kClasses});
    update_({.begin = 0, .count = kClasses}, at::ones({kClasses, kPixels}));
    return at::zeros({}, at::kFloat).requires_grad_();
  }
  Tensor embed(const data::Batch&) override { return {}; }
  Answers evaluate(const data::Batch&, int64_t, std::span<const int64_t>) override { return {}; }
  void set_training(bool) override {}
  std::vector<Parameter> parameters() const override {
    return {Parameter::split("rows", weight_, {0, 0, kClasses, kClasses})};
  }
  std::vector<Parameter> buffers() const override { return {}; }
  std::optional<RowParameter> row_parameter() const override { return RowParameter{"rows", true, false}; }
  void set_row_hooks(RowUpdate update, RowsRead read) override {
    update_ = std::move(update);
    read_ = std::move(read);
  }
  bool has_hooks() const { return update_ || read_; }
  void fail() { fails_ = true; }

 private:
  Tensor weight_ = at::zeros({kClasses, kPixels}).requires_grad_();
  RowUpdate update_;
  RowsRead read_;
  bool fails_ = false;
};

struct RowHooks : testing::Test {
  const data::Split data = data::synthetic({.classes = kClasses, .shape = {1, 1, kPixels}});
  const std::unique_ptr<comm::ProcessGroup> group = comm::make_single_group();
  Rowwise task;

  void train() {
    data::Loader loader(*data.train, {.batch = 4, .prefetch = 0});
    TrainerOptions options;
    options.steps = 2;
    parallel::Mesh mesh({}, *group);
    SupervisedStep step(task, {.num_classes = kClasses}, mesh);
    Trainer trainer(step, loader, nullptr, options, nullptr, *group);
    Observer nobody;
    trainer.run(nobody);
  }
};

TEST_F(RowHooks, LeaveTheTaskBeforeTheTrainerEnds) {
  train();
  EXPECT_FALSE(task.has_hooks());
}

TEST_F(RowHooks, LeaveTheTaskWhenAStepThrows) {
  task.fail();
  EXPECT_THROW(train(), std::runtime_error);
  EXPECT_FALSE(task.has_hooks());
}

}  // namespace
}  // namespace tandem::train
