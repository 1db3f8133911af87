#include "tandem/base/context.h"
#include "tandem/models/detail/fused_batch_norm.h"
#include "tandem/models/network/layers.h"

namespace tandem::models {
namespace {

constexpr double kMomentum = 0.1, kEpsilon = 1e-5;
constexpr int64_t kChannelsPerGroup = 16;

/// Overwrites `values`, which must be a new tensor that is used nowhere else, and that backward of its operator does
/// not need.
Tensor finish(Tensor values, Activation activation, const Tensor& residual) {
  if (residual.defined()) values.add_(residual);
  if (activation == Activation::relu) values.relu_();
  return values;
}

class BatchNorm : public Normalization {
 public:
  explicit BatchNorm(int64_t channels) : Normalization("BatchNorm") {
    weight_ = register_parameter("weight", at::empty({channels}));
    bias_ = register_parameter("bias", at::empty({channels}));
    running_mean_ = register_buffer("running_mean", at::empty({channels}));
    running_var_ = register_buffer("running_var", at::empty({channels}));
    num_batches_tracked_ = register_buffer("num_batches_tracked", at::empty({}, at::kLong));
  }

  Tensor forward(const Tensor& input, Activation activation, const Tensor& residual) override {
    if (is_training() && input.numel() > 0) {
      TORCH_CHECK_VALUE(input.numel() > input.size(1), "batch normalisation: input is ", input.sizes(),
                        ", wanted more than one value a channel in training: raise the batch of each rank");
    }
    const bool moves = is_training() && current_context().statistics != BatchStatistics::hold;
    if (moves && input.numel() > 0) num_batches_tracked_.add_(1);
    // With momentum 0 the statistics keep their bits, and everything else is as if they moved.
    const double momentum = moves ? kMomentum : 0;
    const detail::BatchNormState state{weight_, bias_, running_mean_, running_var_, momentum, kEpsilon};
    if ((is_training() || !at::GradMode::is_enabled()) && detail::can_fuse(input, residual, state)) {
      return detail::fused_batch_norm(input, state, is_training(), activation, residual);
    }
    auto output = at::batch_norm(input, weight_, bias_, running_mean_, running_var_, is_training(), momentum, kEpsilon,
                                 /*cudnn_enabled=*/true);
    return finish(std::move(output), activation, residual);
  }

  void initialize(uint64_t, const std::string&) override {
    const at::NoGradGuard no_grad;
    weight_.fill_(1);
    bias_.zero_();
    running_mean_.zero_();
    running_var_.fill_(1);
    num_batches_tracked_.zero_();
  }

 private:
  Tensor weight_, bias_, running_mean_, running_var_, num_batches_tracked_;
};

class GroupNorm : public Normalization {
 public:
  explicit GroupNorm(int64_t channels) : Normalization("GroupNorm") {
    weight_ = register_parameter("weight", at::empty({channels}));
    bias_ = register_parameter("bias", at::empty({channels}));
  }

  Tensor forward(const Tensor& input, Activation activation, const Tensor& residual) override {
    return finish(at::group_norm(input, groups_of(input), weight_, bias_, kEpsilon), activation, residual);
  }

  void initialize(uint64_t, const std::string&) override {
    const at::NoGradGuard no_grad;
    weight_.fill_(1);
    bias_.zero_();
  }

 private:
  static int64_t groups_of(const Tensor& input) {
    const int64_t channels = input.size(1);
    return input.dim() > 2 && channels % kChannelsPerGroup == 0 ? channels / kChannelsPerGroup : 1;
  }

  Tensor weight_, bias_;
};

class NoNormalization : public Normalization {
 public:
  NoNormalization() : Normalization("NoNormalization") {}

  Tensor forward(const Tensor& input, Activation activation, const Tensor& residual) override {
    return finish(input, activation, residual);
  }

  void initialize(uint64_t, const std::string&) override {}
};

}  // namespace

std::shared_ptr<Normalization> make_normalization(Norm norm, int64_t channels) {
  switch (norm) {
    case Norm::batch:
      return std::make_shared<BatchNorm>(channels);
    case Norm::group:
      return std::make_shared<GroupNorm>(channels);
    case Norm::none:
      break;
  }
  return std::make_shared<NoNormalization>();
}

}  // namespace tandem::models
