#include "tandem/memory/batch_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>

#include "tandem/base/context.h"
#include "tandem/base/tangent.h"
#include "tandem/memory/detail/device_statistics.h"

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

Tensor in_double(const Tensor& numbers) { return numbers.to(at::kDouble).contiguous(); }

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
    mean[channels + c] = batch.variance[c] + state.epsilon;
  }
  numbers[2].sqrt_().reciprocal_();  // as on a device
  return numbers;
}

/// What normalises a batch over ranks: the same rows, on x's device, and the values of a channel on all ranks. Moves
/// the running statistics.
std::pair<Tensor, double> numbers_over_ranks(const Tensor& x, const BatchNormState& state) {
  const at::NoGradGuard no_grad;
  if (x.is_cpu()) {
    const auto statistics = moments_of(x).statistics(state.ranks.get());
    move_running(state, statistics);
    return {numbers_of(state, statistics), statistics.rows};
  }
  const auto statistics = detail::DeviceMoments::of_batch(x).statistics(state.ranks.get());
  detail::move_running(state, statistics);
  const auto weight = state.weight.defined() ? in_double(state.weight.detach()) : at::ones_like(statistics.mean);
  const auto inverse = (statistics.variance + state.epsilon).sqrt_().reciprocal_();
  return {at::stack({weight, statistics.mean, inverse}), statistics.rows};
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

/// (x - mean) / sqrt(variance + epsilon), as a new tensor.
Tensor normalised(const Tensor& x, const Tensor& mean, const Tensor& inverse) {
  return x.to(wide(x)).sub(over(x, mean)).mul_(over(x, inverse));
}

/// Rows of sums over the batch, of all ranks, divided by its rows: means.
Tensor means_of(const std::vector<Tensor>& own, const Batch& batch) {
  if (!batch.ranks) return at::stack(own) / batch.rows;
  auto sums = in_double(at::stack(own));
  batch.ranks->add(sums.view({-1}));
  return (sums / batch.rows).to(own[0].options());
}

/// The tangent of the output along that of the input, t. With n = (x - mean) / deviation and <.> the mean of the batch,
///
///   result = weight / deviation (t - <t> - n <n t>)
class TangentNode : public torch::autograd::Function<TangentNode> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& tangent,
                        const std::optional<Tensor>& weight, const Tensor& mean, const Tensor& inverse,
                        const c10::intrusive_ptr<Batch>& batch) {
    auto result = normalised(x, mean, inverse);
    const auto t = tangent.to(wide(x));
    const auto dims = all_but_channels(x);
    const auto means = means_of({t.sum(dims), (result * t).sum(dims)}, *batch);
    context->save_for_backward({x, tangent, weight.value_or(Tensor()), mean, inverse, means});
    context->saved_data["batch"] = c10::IValue::make_capsule(batch);
    const auto scale = weight ? *weight * inverse : inverse;
    result.mul_(over(x, -means[1])).add_(t).sub_(over(x, means[0])).mul_(over(x, scale));
    return result.to(x.scalar_type());
  }

  /// For the gradient g, with a = <n g>, b = <n t>, c = <g t> - <g> <t>:
  ///
  ///   by t       weight / deviation (g - <g> - n a)
  ///   by x       -weight / variance (b g + a t + n (c - 3 a b) - b <g> - a <t>)
  ///   by weight  the sum of g (t - <t> - n b) / deviation
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(), "batch normalisation: third derivatives");
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[2], &inverse = saved[4];
    const auto of_t = saved[5][0], b = saved[5][1];
    const auto capsule = context->saved_data["batch"].toCapsule();
    const auto& batch = static_cast<const Batch&>(*capsule);
    const auto dims = all_but_channels(x);
    const auto g = gradients[0].to(wide(x)), t = saved[1].to(wide(x)), n = normalised(x, saved[3], inverse);
    const auto sum_g = g.sum(dims), sum_gn = (g * n).sum(dims), sum_gt = (g * t).sum(dims);
    const auto means = means_of({sum_g, sum_gn, sum_gt}, batch);
    const auto of_g = means[0], a = means[1], c = means[2] - of_g * of_t;
    const auto scale = weight.defined() ? weight * inverse : inverse, steep = -scale * inverse;
    Tensor by_x, by_t, by_weight;
    if (context->needs_input_grad(0)) {
      by_x = g * over(x, steep * b);
      by_x.addcmul_(t, over(x, steep * a)).addcmul_(n, over(x, steep * (c - 3 * a * b)));
      by_x = by_x.sub_(over(x, steep * (b * of_g + a * of_t))).to(x.scalar_type());
    }
    if (context->needs_input_grad(1)) {
      by_t = g.sub(over(x, of_g)).addcmul_(n, over(x, -a)).mul_(over(x, scale)).to(saved[1].scalar_type());
    }
    if (weight.defined()) by_weight = (sum_gt - of_t * sum_g - b * sum_gn).mul_(inverse).to(weight.scalar_type());
    return {by_x, by_t, by_weight, {}, {}, {}};
  }
};

/// By TangentNode. `x`: with its tangent.
Tensor batch_norm_tangent(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& inverse_deviation,
                          const std::shared_ptr<StatisticsExchange>& ranks, double rows) {
  const auto given = weight.defined() ? std::optional(primal_of(weight)) : std::nullopt;
  return TangentNode::apply(primal_of(x), tangent_of(x), given, mean.to(wide(x)), inverse_deviation.to(wide(x)),
                            c10::make_intrusive<Batch>(ranks, rows));
}

bool has_tangent(const Tensor& x, const BatchNormState& state) {
  return tangent_of(x).defined() || tangent_of(state.weight).defined() || tangent_of(state.bias).defined();
}

/// y with its tangent. `normalise`: gives what y is, with another weight and bias.
Tensor with_tangent_of_norm(const Tensor& y, const Tensor& x, const BatchNormState& state, const Tensor& mean,
                            const Tensor& inverse, double rows,
                            const std::function<Tensor(const Tensor& weight, const Tensor& bias)>& normalise) {
  Tensor tangent;
  if (tangent_of(x).defined()) tangent = batch_norm_tangent(x, state.weight, mean, inverse, state.ranks, rows);
  auto weight = tangent_of(state.weight), bias = tangent_of(state.bias);
  if (weight.defined() || bias.defined()) {
    if (!weight.defined()) weight = at::zeros_like(bias);
    if (!bias.defined()) bias = at::zeros_like(weight);
    const auto of_weights = normalise(weight, bias);
    tangent = tangent.defined() ? tangent + of_weights : of_weights;
  }
  return with_tangent(y, tangent);
}

/// Values of a channel.
double rows_of(const Tensor& x) { return static_cast<double>(x.numel()) / static_cast<double>(x.size(1)); }

/// In training, by this rank's images.
Tensor by_own_images(const Tensor& x, const BatchNormState& state) {
  const double rows = rows_of(x);
  const auto moved = begin_move(state, rows);
  const auto [y, mean, inverse, reserve, implementation] =
      at::_batch_norm_impl_index(x, state.weight, state.bias, moved.mean, moved.variance, /*training=*/true,
                                 moved.momentum, state.epsilon, /*cudnn_enabled=*/true);
  end_move(state, rows, mean, inverse);
  return y;
}

/// The same with the tangent of y.
Tensor batch_norm_with_tangent(const Tensor& x, const BatchNormState& state) {
  const double rows = rows_of(x);
  const auto primal = primal_of(x);
  const auto moved = begin_move(state, rows);
  const auto [y, mean, inverse] =
      at::native_batch_norm(primal, primal_of(state.weight), primal_of(state.bias), moved.mean, moved.variance,
                            /*training=*/true, moved.momentum, state.epsilon);
  end_move(state, rows, mean, inverse);
  return with_tangent_of_norm(y, x, state, mean, inverse, rows, [&](const Tensor& weight, const Tensor& bias) {
    return std::get<0>(at::native_batch_norm(primal, weight, bias, {}, {},
                                             /*training=*/true, 0, state.epsilon));
  });
}

}  // namespace

Tensor batch_norm(const Tensor& x, const BatchNormState& state, bool training) {
  if (!training) {
    return at::batch_norm(x, state.weight, state.bias, state.running_mean, state.running_var, training,
                          /*momentum=*/0, state.epsilon, /*cudnn_enabled=*/true);
  }
  if (!state.ranks) {
    return x.numel() > 0 && has_tangent(x, state) ? batch_norm_with_tangent(x, state) : by_own_images(x, state);
  }
  const auto [numbers, rows] = numbers_over_ranks(x.detach(), state);
  const auto batch = c10::make_intrusive<Batch>(state.ranks, rows);
  const auto normalise = [&](const Tensor& weight, const Tensor& bias, const Tensor& by) {
    const auto given = [](const Tensor& tensor) { return tensor.defined() ? std::optional(tensor) : std::nullopt; };
    return SharedBatchNorm::apply(primal_of(x), given(weight), given(bias), by, batch);
  };
  const auto y = normalise(primal_of(state.weight), primal_of(state.bias), numbers);
  if (!has_tangent(x, state)) return y;
  return with_tangent_of_norm(y, x, state, numbers[1], numbers[2], batch->rows,
                              [&, &numbers = numbers](const Tensor& weight, const Tensor& bias) {
                                const auto of_weight = at::stack({in_double(weight), numbers[1], numbers[2]});
                                return normalise(weight, bias, of_weight);
                              });
}

}  // namespace tandem::memory
