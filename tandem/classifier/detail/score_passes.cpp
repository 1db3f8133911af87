#include "tandem/classifier/detail/score_passes.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <limits>

#include "tandem/base/device_kernels.h"
#include "tandem/classifier/detail/on_device.h"
#include "tandem/kernels/score_kernels.h"

namespace tandem::classifier::detail {
namespace {

namespace gpu = kernels::gpu;
using memory::GpuLaunch;

bool has_kernel(const Tensor& x) { return have_kernels(Kernels::scores, x); }

template <class T, class S>
kernels::Block<T, S> block_of(const Tensor& products, const Tensor& factors) {
  return {static_cast<S*>(products.mutable_data_ptr()), factors.const_data_ptr<T>(), products.size(0),
          products.size(1)};
}

template <class T>
T* line_of(const Tensor& lines, int64_t line) {
  return lines.defined() ? lines.mutable_data_ptr<T>() + line * lines.size(1) : nullptr;
}

/// Products in bfloat16 are counted in float.
Tensor scores_of(const Tensor& products, const Tensor& factors) {
  return products.to(factors.scalar_type()) * factors.unsqueeze(1);
}

void add_by_operators(const Tensor& scores, int64_t lane, Running& running) {
  const auto before = running.maximum[lane], maximum = at::maximum(before, scores.amax({0}));
  running.sum[lane].mul_((before - maximum).exp_()).add_((scores - maximum).exp_().sum({0}));
  before.copy_(maximum);
  if (running.total.defined()) running.total[lane].add_(scores.sum({0}));
}

Tensor differentiate_by_operators(Tensor& products, const Tensor& factors, double filter, const Shares& shares,
                                  const Tensor& along_samples) {
  const auto scores = scores_of(products, factors);
  auto gradient = (scores - shares.log_sum).clamp_max_(0).exp_().mul_(shares.share).sub_(shares.floor);
  if (std::isfinite(filter)) gradient.masked_fill_(scores.gt(filter), 0);
  const auto along = gradient * scores;
  along_samples.add_(along.sum({0}));
  products.copy_(gradient.mul_(factors.unsqueeze(1)));
  return along.sum({1});
}

}  // namespace

int threads_for(const Tensor& features) {
  return features.is_cpu() && has_kernel(features) ? at::get_num_threads() : 1;
}

Running start_running(const Tensor& features, int64_t lanes, int64_t columns, bool with_total) {
  Running running;
  running.maximum = at::empty({lanes, columns}, features.options());
  AT_DISPATCH_FLOATING_TYPES(features.scalar_type(), "softmax loss",
                             [&] { running.maximum.fill_(std::numeric_limits<scalar_t>::lowest()); });
  running.sum = at::zeros_like(running.maximum);
  if (with_total) running.total = at::zeros_like(running.maximum);
  return running;
}

void drop_above(Tensor& products, const Tensor& factors, double filter) {
  if (std::isfinite(filter)) products.masked_fill_(scores_of(products, factors).gt(filter), 0);
}

void add_block(const Tensor& products, const Tensor& factors, int64_t lane, Running& running) {
  if (products.size(0) == 0) return;
  if (!has_kernel(products)) return add_by_operators(scores_of(products, factors), lane, running);
  dispatch_block(products, [&]<class T, class S>(T, S) {
    const auto block = block_of<T, S>(products, factors);
    const kernels::RunningRows<T> rows = {line_of<T>(running.maximum, lane), line_of<T>(running.sum, lane),
                                          line_of<T>(running.total, lane)};
    if (products.is_cpu()) return kernels::add_block<T, S>(block, rows);
    GpuLaunch launch(products);
    auto* scratch = launch.scratch(gpu::score_scratch<T>(block.rows, block.columns));
    GpuLaunch::check(gpu::add_block<T, S>(block, rows, scratch, launch.stream()));
  });
}

Running merge_lanes(const Running& running) {
  Running merged;
  merged.maximum = running.maximum.amax({0});
  merged.sum = ((running.maximum - merged.maximum).exp_() * running.sum).sum({0});
  if (running.total.defined()) merged.total = running.total.sum({0});
  return merged;
}

Tensor differentiate_block(Tensor& products, const Tensor& factors, double filter, const Shares& shares,
                           const Tensor& along_samples) {
  if (!has_kernel(products)) {
    return differentiate_by_operators(products, factors, filter, shares, along_samples);
  }
  const auto along_classes = at::empty({products.size(0)}, factors.options());
  dispatch_block(products, [&]<class T, class S>(T, S) {
    const auto rows = share_rows<T>(shares);
    const auto block = block_of<T, S>(products, factors);
    auto *classes = along_classes.mutable_data_ptr<T>(), *samples = along_samples.mutable_data_ptr<T>();
    const auto most = static_cast<T>(filter);
    if (products.is_cpu()) return kernels::differentiate_block<T, S>(block, rows, most, classes, samples);
    GpuLaunch launch(products);
    auto* scratch = launch.scratch(gpu::score_scratch<T>(block.rows, block.columns));
    GpuLaunch::check(gpu::differentiate_block<T, S>(block, rows, most, classes, samples, scratch, launch.stream()));
  });
  return along_classes;
}

void exponentiate_block(Tensor& products, const Tensor& factors, const Tensor& exponents, const Tensor& exponent,
                        const Tensor& sum) {
  if (products.size(0) == 0) return;
  dispatch_block(products, [&]<class T, class S>(T, S) {
    const auto block = block_of<T, S>(products, factors);
    GpuLaunch launch(products);
    auto* scratch = launch.scratch(gpu::score_scratch<T>(block.rows, block.columns));
    const kernels::ExponentRows<T> running = {exponent.mutable_data_ptr<int32_t>(), sum.mutable_data_ptr<T>()};
    GpuLaunch::check(
        gpu::exponentiate_block<T, S>(block, exponents.mutable_data_ptr<int32_t>(), running, scratch, launch.stream()));
  });
}

void exponentiate_again(Tensor& products, const Tensor& factors, const Tensor& exponents) {
  dispatch_block(products, [&]<class T, class S>(T, S) {
    const auto block = block_of<T, S>(products, factors);
    const int64_t packs = kernels::packs_of(block.columns, kernels::kScoreSums<T>);
    for_each_on(products, block.rows * packs,
                kernels::ExponentiateAgainBody<T, S>{block, exponents.const_data_ptr<int32_t>(), packs});
  });
}

void scale_tile(const Tensor& exponents, const Tensor& log_sum, const Tensor& share, const Tensor& scale) {
  AT_DISPATCH_FLOATING_TYPES(scale.scalar_type(), "softmax loss", [&] {
    for_each_on(
        scale, scale.numel(),
        kernels::TileScaleBody<scalar_t>{exponents.const_data_ptr<int32_t>(), log_sum.const_data_ptr<scalar_t>(),
                                         share.const_data_ptr<scalar_t>(), scale.mutable_data_ptr<scalar_t>()});
  });
}

void project_along(const Tensor& gradient, const Tensor& weight, const Tensor& factors, Tensor& along) {
  dispatch_block(gradient, [&]<class T, class S>(T, S) {
    const GpuLaunch launch(gradient);
    GpuLaunch::check(gpu::project_along<T, S>(static_cast<const S*>(gradient.const_data_ptr()),
                                              weight.const_data_ptr<T>(), factors.const_data_ptr<T>(), weight.size(0),
                                              weight.size(1), along.mutable_data_ptr<T>(), launch.stream()));
  });
}

void add_along(const Tensor& gradient, const Tensor& weight, const Tensor& along, Tensor& out) {
  if (!has_kernel(out) || !weight.is_contiguous()) {
    out.copy_(gradient);
    out.addcmul_(weight, along.unsqueeze(1));
    return;
  }
  dispatch_block(gradient, [&]<class T, class S>(T, S) {
    const auto* from = static_cast<const S*>(gradient.const_data_ptr());
    const auto *own = weight.const_data_ptr<T>(), *by = along.const_data_ptr<T>();
    auto* to = out.mutable_data_ptr<T>();
    if (out.is_cpu()) return kernels::add_along<T, S>(from, own, by, out.size(0), out.size(1), to);
    const GpuLaunch launch(out);
    GpuLaunch::check(gpu::add_along<T, S>(from, own, by, out.size(0), out.size(1), to, launch.stream()));
  });
}

void add_rounded(const Tensor& values, Tensor& sum) {
  if (!has_kernel(sum)) {
    sum.add_(values);
    return;
  }
  const auto* from = static_cast<const uint16_t*>(values.const_data_ptr());
  if (sum.is_cpu()) return kernels::add_rounded(from, sum.numel(), sum.mutable_data_ptr<float>());
  const GpuLaunch launch(sum);
  GpuLaunch::check(gpu::add_rounded(from, sum.numel(), sum.mutable_data_ptr<float>(), launch.stream()));
}

Tensor inverse_lengths(const Tensor& rows) {
  if (!has_kernel(rows) || !rows.is_contiguous()) {
    return rows.norm(2, {1}).clamp_min_(1e-12).reciprocal_();
  }
  const auto result = at::empty({rows.size(0)}, rows.options());
  constexpr int64_t kRowsAThread = 64;
  AT_DISPATCH_FLOATING_TYPES(rows.scalar_type(), "softmax loss", [&] {
    if (!rows.is_cpu()) {
      const GpuLaunch launch(rows);
      return GpuLaunch::check(gpu::inverse_lengths<scalar_t>(rows.const_data_ptr<scalar_t>(), rows.size(0),
                                                             rows.size(1), result.mutable_data_ptr<scalar_t>(),
                                                             launch.stream()));
    }
    at::parallel_for(0, rows.size(0), kRowsAThread, [&](int64_t begin, int64_t end) {
      kernels::inverse_lengths<scalar_t>(rows.const_data_ptr<scalar_t>() + begin * rows.size(1), end - begin,
                                         rows.size(1), result.mutable_data_ptr<scalar_t>() + begin);
    });
  });
  return result;
}

void round_rows(const Tensor& rows, Tensor& rounded, Tensor& inverse) {
  if (!has_kernel(rows) || !rows.is_contiguous()) {
    rounded.copy_(rows);
    inverse.copy_(inverse_lengths(rows));
    return;
  }
  const auto* from = rows.const_data_ptr<float>();
  auto* to = static_cast<uint16_t*>(rounded.mutable_data_ptr());
  auto* lengths = inverse.mutable_data_ptr<float>();
  if (rows.is_cpu()) return kernels::round_rows(from, rows.size(0), rows.size(1), to, lengths);
  const GpuLaunch launch(rows);
  GpuLaunch::check(gpu::round_rows(from, rows.size(0), rows.size(1), to, lengths, launch.stream()));
}

}  // namespace tandem::classifier::detail
