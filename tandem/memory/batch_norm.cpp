#include "tandem/memory/batch_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "tandem/base/context.h"

namespace tandem::memory {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// What the node of the graph keeps besides tensors.
struct Batch : torch::CustomClassHolder {
  Batch(std::shared_ptr<StatisticsExchange> of_ranks, double of_rows) : ranks(std::move(of_ranks)), rows(of_rows) {}

  std::shared_ptr<StatisticsExchange> ranks;
  double rows;  // of all ranks
};

at::ScalarType wide(const Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

std::vector<int64_t> all_but_channels(const Tensor& x) {
  std::vector<int64_t> dims;
  for (int64_t dim = 0; dim < x.dim(); ++dim) {
    if (dim != 1) dims.push_back(dim);
  }
  return dims;
}

/// Numbers of channels as a tensor that multiplies x.
Tensor over(const Tensor& x, const Tensor& numbers) {
  std::vector<int64_t> sizes(x.dim(), 1);
  sizes[1] = x.size(1);
  return numbers.to(x.device(), wide(x)).view(sizes);
}

Tensor in_double(const Tensor& numbers) { return numbers.to(at::kCPU, at::kDouble).contiguous(); }

ChannelMoments moments_of(const Tensor& x) {
  ChannelMoments own(x.size(1));
  if (x.numel() == 0) return own;
  const auto rows = static_cast<double>(x.numel() / x.size(1));
  const auto [variance, mean] = at::var_mean(x.to(wide(x)), all_but_channels(x), /*correction=*/at::Scalar(0));
  const auto means = in_double(mean), squares = in_double(variance) * rows;
  own.merge(rows, means.const_data_ptr<double>(), squares.const_data_ptr<double>());
  return own;
}

/// Rows of a float64 [3, C] tensor: weight, mean, 1 / sqrt(variance + epsilon).
Tensor numbers_of(const BatchNormState& state, const ChannelStatistics& batch) {
  const auto channels = static_cast<int64_t>(batch.mean.size());
  auto numbers = at::empty({3, channels}, at::kDouble);
  if (state.weight.defined()) {
    numbers[0].copy_(state.weight.detach());
  } else {
    numbers[0].fill_(1);
  }
  auto* mean = numbers.mutable_data_ptr<double>() + channels;
  for (int64_t c = 0; c < channels; ++c) {
    mean[c] = batch.mean[c];
    mean[channels + c] = 1 / std::sqrt(batch.variance[c] + state.epsilon);
  }
  return numbers;
}

class SharedBatchNorm : public torch::autograd::Function<SharedBatchNorm> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const std::optional<Tensor>& weight,
                        const std::optional<Tensor>& bias, const Tensor& numbers,
                        const c10::intrusive_ptr<Batch>& batch) {
    context->save_for_backward({x, numbers});
    context->saved_data["batch"] = c10::IValue::make_capsule(batch);
    context->saved_data["weight"] = weight.has_value();
    context->saved_data["bias"] = bias.has_value();
    context->saved_data["type"] = weight ? weight->scalar_type() : x.scalar_type();
    const auto scale = numbers[0] * numbers[2], shift = -numbers[1] * scale;
    const auto offset = bias ? in_double(*bias) + shift : shift;
    auto y = at::empty_like(x, x.options().dtype(wide(x)));
    at::addcmul_out(y, over(x, offset), x.to(wide(x)), over(x, scale));
    return y.to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(),
                                "batch normalisation over ranks: its gradient has none of its own: for second ",
                                "derivatives normalise the images of each rank");
    const auto saved = context->get_saved_variables();
    const auto& x = saved[0];
    const auto mean = saved[1][1], inverse = saved[1][2], scale = saved[1][0] * inverse;
    const auto capsule = context->saved_data["batch"].toCapsule();
    const auto& batch = static_cast<const Batch&>(*capsule);

    const auto dims = all_but_channels(x);
    const auto dy = gradients[0].to(wide(x));
    auto centred = x.to(wide(x)) - over(x, mean);
    const auto by_bias = in_double(dy.sum(dims)), by_weight = in_double((dy * centred).sum(dims)) * inverse;
    const auto sums = at::stack({by_bias, by_weight});
    batch.ranks->add(sums.view({-1}));
    const auto slope = -scale * inverse * sums[1] / batch.rows, shift = -scale * sums[0] / batch.rows;
    const auto dx = centred.mul_(over(x, slope)).add_(over(x, shift)).addcmul_(dy, over(x, scale));
    const auto options = x.options().dtype(context->saved_data["type"].toScalarType());
    const auto if_given = [&](const char* name, const Tensor& gradient) {
      return context->saved_data[name].toBool() ? gradient.to(options) : Tensor();
    };
    return {dx.to(x.scalar_type()), if_given("weight", by_weight), if_given("bias", by_bias), {}, {}};
  }
};

}  // namespace

Tensor batch_norm(const Tensor& x, const BatchNormState& state, bool training) {
  const bool has_numbers = x.numel() > 0;
  if (!training || !state.ranks) {
    const double momentum = training && has_numbers ? begin_move(state) : 0;
    const bool reads_running = !training || current_context().statistics != BatchStatistics::leave;
    return at::batch_norm(x, state.weight, state.bias, reads_running ? state.running_mean : Tensor(),
                          reads_running ? state.running_var : Tensor(), training, momentum, state.epsilon,
                          /*cudnn_enabled=*/true);
  }
  Tensor numbers;
  c10::intrusive_ptr<Batch> batch;
  {
    const at::NoGradGuard no_grad;
    const auto statistics = moments_of(x.detach()).statistics(state.ranks.get());
    move_running(state, statistics);
    numbers = numbers_of(state, statistics);
    batch = c10::make_intrusive<Batch>(state.ranks, statistics.rows);
  }
  const auto given = [](const Tensor& tensor) { return tensor.defined() ? std::optional(tensor) : std::nullopt; };
  return SharedBatchNorm::apply(x, given(state.weight), given(state.bias), numbers, batch);
}

}  // namespace tandem::memory
