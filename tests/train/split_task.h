#pragma once
#include "tandem/parallel/mesh.h"
#include "tandem/train/supervised_step.h"

namespace tandem::train {

/// A network of two layers, on each of the ranks that share a batch. Along the mesh's axis tensor the first layer is
/// split by its columns and the second by its rows; along the axis pipeline the first stage holds the one, and the last
/// stage the other. No size is divided by all numbers of ranks.
///
///   x [n, 9] ── column.weight [7, 9] ── tanh ── row.weight [3, 7], row.bias [3] ── mean square of y - target
///                     │                  └ column.seen [7]: a running mean over the samples of all ranks
///                     └ 4 and 3 of 7 on two ranks along tensor
class SplitTask : public Task {
 public:
  /// The weights are parts of the same whole tensors on every mesh.
  explicit SplitTask(parallel::Mesh& mesh);

  Tensor loss(const data::Batch& batch, std::span<const int64_t> sizes) override;
  parallel::Axes summed_along() const override { return {parallel::Axis::pipeline}; }  // the last stage has it
  Tensor embed(const data::Batch& batch) override;
  Answers evaluate(const data::Batch& batch, int64_t k, std::span<const int64_t> sizes) override;
  void set_training(bool training) override { is_training_ = training; }
  memory::Chain* replicated_chain() override { return &chain_; }
  std::vector<Parameter> parameters() const override { return parameters_; }
  std::vector<Parameter> buffers() const override { return buffers_; }

  /// This rank's samples of a batch of `size` that is the same on every mesh.
  data::Batch batch(int64_t step, int64_t size) const;

  /// What this stage makes of its input: of the images on the first stage.
  Tensor forward(const Tensor& input) const { return memory::run(chain_, input); }

  /// This rank's term of the batch's loss, and that of all ranks which share the batch.
  struct Loss {
    Tensor own;
    double value = 0;
  };
  Loss loss_of(const Tensor& output, const data::Batch& batch) const;

 private:
  Parameter part(const std::string& name, at::IntArrayRef sizes, std::optional<int64_t> dim, int stage) const;
  void add_column();
  void add_row();
  void see(const Tensor& hidden);

  parallel::Mesh& mesh_;
  std::vector<Parameter> parameters_, buffers_;
  memory::Chain chain_;
  bool is_training_ = true;
};

Tensor input_of(const data::Batch& batch);

/// Passes of two stages: the whole batch forward, then backward.
MakePasses two_stages(SplitTask& task);

}  // namespace tandem::train
