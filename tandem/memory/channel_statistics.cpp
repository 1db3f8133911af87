#include "tandem/memory/channel_statistics.h"

#include <ATen/ATen.h>

#include <utility>

#include "tandem/base/device_kernels.h"
#include "tandem/memory/detail/device_statistics.h"

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

void count_batch(const BatchNormState& state) {
  if (state.batches.defined()) state.batches.add_(1);
}

ChannelStatistics statistics_of(const BatchNormState& state, double rows, const Tensor& mean,
                                const Tensor& inverse_deviation) {
  ChannelStatistics batch{rows, numbers_of(mean), numbers_of(inverse_deviation)};
  for (auto& value : batch.variance) value = std::max(0.0, 1 / (value * value) - state.epsilon);
  return batch;
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
  check_values(whole.rows_, ranks != nullptr);
  ChannelStatistics result{whole.rows_, whole.mean_, whole.squares_};
  if (whole.rows_ == 0) return result;
  for (auto& variance : result.variance) variance /= whole.rows_;
  return result;
}

void check_values(double rows, bool of_all_ranks) {
  TORCH_CHECK_VALUE(rows != 1, "batch normalisation: the batch", of_all_ranks ? " of all ranks" : "",
                    " has one value a channel, wanted more in training: raise the batch");
}

ChannelStatistics running_statistics(const BatchNormState& state) {
  return {0, numbers_of(state.running_mean), numbers_of(state.running_var)};
}

void move_running(const BatchNormState& state, const ChannelStatistics& batch) {
  if (batch.rows == 0) return;
  const auto context = current_context();
  if (context.statistics == BatchStatistics::defer) return context.book->add(state, batch);
  if (context.statistics != BatchStatistics::move) return;
  count_batch(state);
  const auto &mean = state.running_mean, &variance = state.running_var;
  const auto are = [&](at::ScalarType type) { return is_plain(mean, type) && is_plain(variance, type); };
  if (are(at::kFloat)) return move<float>(mean, variance, state.momentum, batch);
  if (are(at::kDouble)) return move<double>(mean, variance, state.momentum, batch);
  move_copies(state, state.momentum, batch);
}

MovedStatistics begin_move(const BatchNormState& state, double rows) {
  const auto rule = current_context().statistics;
  if (rule == BatchStatistics::leave) return {};
  if (rule != BatchStatistics::move || rows == 0) return {state.running_mean, state.running_var};
  count_batch(state);
  return {state.running_mean, state.running_var, state.momentum};
}

void end_move(const BatchNormState& state, double rows, const Tensor& mean, const Tensor& inverse_deviation) {
  const auto context = current_context();
  if (context.statistics != BatchStatistics::defer || rows == 0) return;
  if (mean.is_cpu()) return context.book->add(state, statistics_of(state, rows, mean, inverse_deviation));
  const auto variance = inverse_deviation.to(at::kDouble).square().reciprocal_().sub_(state.epsilon).clamp_min_(0);
  context.book->add_later(state, rows, mean.to(at::kDouble), variance);
}

void StatisticsBook::add(const BatchNormState& state, const ChannelStatistics& batch) {
  const auto channels = static_cast<int64_t>(batch.mean.size());
  const auto* key = state.running_mean.unsafeGetTensorImpl();
  auto& moments = entries_.try_emplace(key, Entry{state, ChannelMoments(channels)}).first->second.moments;
  auto squares = batch.variance;
  for (auto& value : squares) value *= batch.rows;
  moments.merge(batch.rows, batch.mean.data(), squares.data());
}

void StatisticsBook::add_later(const BatchNormState& state, double rows, const Tensor& mean, const Tensor& variance) {
  later_.push_back({state, rows, mean, variance});
}

void StatisticsBook::commit() {
  std::map<const void*, std::pair<BatchNormState, detail::DeviceMoments>> on_device;
  for (const auto& [state, rows, mean, variance] : std::exchange(later_, {})) {
    const auto* key = state.running_mean.unsafeGetTensorImpl();
    auto& moments = on_device.try_emplace(key, state, detail::DeviceMoments(mean)).first->second.second;
    moments.merge(rows, mean, variance * rows);
  }
  for (const auto& [_, entry] : on_device) {
    detail::move_running(entry.first, entry.second.statistics(/*ranks=*/nullptr));
  }
  for (const auto& [_, entry] : std::exchange(entries_, {})) {
    move_running(entry.state, entry.moments.statistics(/*ranks=*/nullptr));
  }
}

Context deferring(StatisticsBook& book) {
  auto context = current_context();
  if (context.statistics != BatchStatistics::move) return context;
  context.statistics = BatchStatistics::defer;
  context.book = &book;
  return context;
}

}  // namespace tandem::memory
