#pragma once
#include <functional>
#include <optional>

#include "tandem/comm/process_group.h"
#include "tandem/data/loader.h"
#include "tandem/train/supervised_step.h"
#include "tandem/train/trainer.h"

namespace tandem::train {

/// Sixteen images of one pixel: as many steps of four samples as a test wants.
class SmallData : public data::Dataset {
 public:
  int64_t size() const override { return 16; }
  int64_t num_classes() const override { return 2; }
  std::array<int64_t, 3> image_shape() const override { return {1, 1, 1}; }
  std::string class_name(int64_t label) const override { return std::to_string(label); }
  std::string describe() const override { return "small"; }
  int64_t read(int64_t index, std::span<uint8_t> pixels) const override {
    check_read(index, pixels);
    pixels[0] = static_cast<uint8_t>(10 * index);
    return index % 2;
  }
};

/// A task of a few numbers, on any number of ranks: a replicated parameter `w`, a parameter `v` whose 5 rows are split,
/// a buffer `seen` that counts the forward passes. The loss is a parabola of all of them. A test changes what happens
/// in a step: the loss, or what the gradients of this rank are multiplied with.
class SmallTask : public Task {
 public:
  struct Step {
    double loss = 1, gradient_of_w = 1, gradient_of_v = 1;  // factors
    double seen = 1;                                        // added to the buffer
    int64_t from = 0;                                       // the micro-batch from which `loss` holds
  };

  explicit SmallTask(comm::ProcessGroup& group);

  std::function<Step(int64_t step)> change;  // steps count from 1, tests as 0
  bool steps_in_backward = false;            // `v`, row by row

  void begin_step(int64_t step) override {
    step_ = step + 1;
    micro_batch_ = 0;
  }
  Tensor loss(const data::Batch& batch, std::span<const int64_t> sizes) override;
  Tensor embed(const data::Batch& batch) override { return batch.images.flatten(1); }
  Answers evaluate(const data::Batch& batch, int64_t k, std::span<const int64_t> sizes) override;
  void set_training(bool training) override { is_training_ = training; }
  std::vector<Parameter> parameters() const override;
  std::vector<Parameter> buffers() const override { return {Parameter::replicated("seen", seen_)}; }
  std::optional<RowParameter> row_parameter() const override;
  void set_row_hooks(RowUpdate update, RowsRead read) override { update_ = std::move(update); }

  const Tensor& w() const { return w_; }
  const Tensor& v() const { return v_; }
  const Tensor& seen() const { return seen_; }

 private:
  comm::ProcessGroup& group_;
  Split rows_;
  Tensor w_, v_, seen_;
  RowUpdate update_;
  int64_t step_ = 0, micro_batch_ = 0;
  bool is_training_ = true;
};

}  // namespace tandem::train
