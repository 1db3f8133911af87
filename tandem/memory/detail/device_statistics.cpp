#include "tandem/memory/detail/device_statistics.h"

#include <ATen/ATen.h>

namespace tandem::memory::detail {

DeviceMoments::DeviceMoments(const Tensor& like)
    : mean_(at::zeros(like.sizes(), like.options().dtype(at::kDouble).requires_grad(false))),
      squares_(at::zeros_like(mean_)) {}

DeviceMoments DeviceMoments::of_batch(const Tensor& x) {
  DeviceMoments own(at::empty({x.size(1)}, x.options()));
  if (x.numel() == 0) return own;
  const auto rows = static_cast<double>(x.numel() / x.size(1));
  std::vector<int64_t> dims;
  for (int64_t dim = 0; dim < x.dim(); ++dim) {
    if (dim != 1) dims.push_back(dim);
  }
  const auto wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto [variance, mean] = at::var_mean(x.to(wide), dims, /*correction=*/at::Scalar(0));
  own.merge(rows, mean.to(at::kDouble), variance.to(at::kDouble) * rows);
  return own;
}

void DeviceMoments::merge(double rows, const Tensor& mean, const Tensor& squares) {
  if (rows == 0) return;
  const auto difference = mean - mean_;
  squares_.add_((difference * difference).mul_(rows_).mul_(rows).div_(rows_ + rows).add_(squares));
  mean_.add_((difference * rows).div_(rows_ + rows));
  rows_ += rows;
}

DeviceMoments DeviceMoments::shared(StatisticsExchange& ranks) const {
  const auto rows = ranks.gather(at::full({1}, rows_, at::kDouble)).contiguous();
  const auto all = ranks.gather(at::cat({mean_, squares_}));
  DeviceMoments merged(mean_);
  const int64_t channels = mean_.size(0);
  for (int64_t rank = 0; rank < all.size(0); ++rank) {
    merged.merge(rows.const_data_ptr<double>()[rank], all[rank].narrow(0, 0, channels),
                 all[rank].narrow(0, channels, channels));
  }
  return merged;
}

DeviceStatistics DeviceMoments::statistics(StatisticsExchange* ranks) const {
  const auto whole = ranks != nullptr ? shared(*ranks) : *this;
  check_values(whole.rows_, ranks != nullptr);
  return {whole.rows_, whole.mean_, whole.rows_ > 0 ? whole.squares_ / whole.rows_ : whole.squares_};
}

void move_running(const BatchNormState& state, const DeviceStatistics& batch) {
  if (batch.rows == 0) return;
  const auto context = current_context();
  if (context.statistics == BatchStatistics::defer) {
    return context.book->add_later(state, batch.rows, batch.mean, batch.variance);
  }
  if (context.statistics != BatchStatistics::move) return;
  if (state.batches.defined()) state.batches.add_(1);
  const auto move = [&](const Tensor& running, const Tensor& now) {
    const auto before = running.to(at::kDouble);
    running.copy_(before + (now - before) * state.momentum);
  };
  move(state.running_mean, batch.mean);
  move(state.running_var, batch.variance * (batch.rows / (batch.rows - 1)));
}

}  // namespace tandem::memory::detail
