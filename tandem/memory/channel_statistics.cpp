#include "tandem/memory/channel_statistics.h"

#include <ATen/ATen.h>

#include "tandem/base/context.h"
#include "tandem/base/device_kernels.h"

namespace tandem::memory {
namespace {

std::vector<double> numbers_of(const Tensor& values) {
  const auto numbers = values.to(at::kCPU, at::kDouble).contiguous();
  const auto* from = numbers.const_data_ptr<double>();
  return {from, from + numbers.numel()};
}

template <class T>
void move(const Tensor& running_mean, const Tensor& running_var, double momentum, const ChannelStatistics& batch) {
  T *mean = running_mean.mutable_data_ptr<T>(), *variance = running_var.mutable_data_ptr<T>();
  const double unbiased = batch.rows / (batch.rows - 1);
  for (size_t c = 0; c < batch.mean.size(); ++c) {
    mean[c] += static_cast<T>(momentum * (batch.mean[c] - mean[c]));
    variance[c] += static_cast<T>(momentum * (batch.variance[c] * unbiased - variance[c]));
  }
}

/// For tensors of any type on any device.
void move_copies(const BatchNormState& state, double momentum, const ChannelStatistics& batch) {
  const at::NoGradGuard no_grad;
  const auto mean = state.running_mean.to(at::kCPU, at::kDouble, false, /*copy=*/true).contiguous(),
             variance = state.running_var.to(at::kCPU, at::kDouble, false, /*copy=*/true).contiguous();
  move<double>(mean, variance, momentum, batch);
  state.running_mean.copy_(mean);
  state.running_var.copy_(variance);
}

bool is_plain(const Tensor& values, at::ScalarType type) {
  return have_kernels(Kernels::running_statistics, values) && values.scalar_type() == type && values.is_contiguous();
}

}  // namespace

std::vector<double> sum_over(StatisticsExchange* ranks, std::vector<double> own) {
  if (ranks == nullptr) return own;
  const auto sums = at::empty({static_cast<int64_t>(own.size())}, at::kDouble);
  std::ranges::copy(own, sums.mutable_data_ptr<double>());
  ranks->add(sums);
  return numbers_of(sums);
}

ChannelMoments::ChannelMoments(int64_t channels) : mean_(channels), squares_(channels) {}

void ChannelMoments::merge(double rows, const double* mean, const double* squares) {
  if (rows == 0) return;
  for (size_t c = 0; c < mean_.size(); ++c) {
    const double difference = mean[c] - mean_[c];
    squares_[c] += squares[c] + difference * difference * rows_ * rows / (rows_ + rows);
    mean_[c] += difference * rows / (rows_ + rows);
  }
  rows_ += rows;
}

/// Each rank sends its rows, means and squares: 2 C + 1 numbers.
ChannelMoments ChannelMoments::shared(StatisticsExchange& ranks) const {
  const auto channels = static_cast<int64_t>(mean_.size()), numbers = 2 * channels + 1;
  const auto own = at::empty({numbers}, at::kDouble);
  auto* to = own.mutable_data_ptr<double>();
  *to++ = rows_;
  std::copy(squares_.begin(), squares_.end(), std::copy(mean_.begin(), mean_.end(), to));
  const auto all = ranks.gather(own);
  ChannelMoments merged(channels);
  for (int64_t rank = 0; rank < all.size(0); ++rank) {
    const auto* from = all.const_data_ptr<double>() + rank * numbers;
    merged.merge(from[0], from + 1, from + 1 + channels);
  }
  return merged;
}

ChannelStatistics ChannelMoments::statistics(StatisticsExchange* ranks) const {
  const auto whole = ranks != nullptr ? shared(*ranks) : *this;
  TORCH_CHECK_VALUE(whole.rows_ != 1, "batch normalisation: the batch", ranks != nullptr ? " of all ranks" : "",
                    " has one value a channel, wanted more in training: raise the batch");
  ChannelStatistics result{whole.rows_, whole.mean_, whole.squares_};
  if (whole.rows_ == 0) return result;
  for (auto& variance : result.variance) variance /= whole.rows_;
  return result;
}

ChannelStatistics running_statistics(const BatchNormState& state) {
  return {0, numbers_of(state.running_mean), numbers_of(state.running_var)};
}

double begin_move(const BatchNormState& state) {
  if (current_context().statistics != BatchStatistics::move) return 0;
  if (state.batches.defined()) state.batches.add_(1);
  return state.momentum;
}

void move_running(const BatchNormState& state, const ChannelStatistics& batch) {
  if (batch.rows == 0) return;
  const double momentum = begin_move(state);
  if (momentum == 0) return;
  const auto &mean = state.running_mean, &variance = state.running_var;
  const auto are = [&](at::ScalarType type) { return is_plain(mean, type) && is_plain(variance, type); };
  if (are(at::kFloat)) return move<float>(mean, variance, momentum, batch);
  if (are(at::kDouble)) return move<double>(mean, variance, momentum, batch);
  move_copies(state, momentum, batch);
}

}  // namespace tandem::memory
