#pragma once
#include <ATen/Parallel.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "tandem/base/context.h"
#include "tandem/base/tensor.h"

// What all batch normalisations share: the statistics of channels, over the images of one rank or of several.
namespace tandem::memory {

/// The ranks whose images make up one batch, as its statistics see them. Both calls are collective: every rank makes
/// the same ones in the same order, also a rank without images, and also when a region is recomputed.
/// parallel/statistics_exchange.h has one.
class StatisticsExchange {
 public:
  virtual ~StatisticsExchange() = default;

  /// float64 [n] on any device -> [ranks, n]: the rows of all ranks, in their order.
  virtual Tensor gather(const Tensor& own) = 0;

  /// Replaces float64 [n] by its sum over the ranks.
  virtual void add(const Tensor& own) = 0;
};

/// Parameters and running statistics as torch::nn::BatchNorm2d has them, each [C]. memory::batch_norm() takes undefined
/// parameters for 1 and 0.
struct BatchNormState {
  Tensor weight, bias, running_mean, running_var;
  double momentum = 0.1, epsilon = 1e-5;
  Tensor batches = {};                             // num_batches_tracked, int64 []; undefined: not counted
  std::shared_ptr<StatisticsExchange> ranks = {};  // whose images are one batch; null: this rank's are
};

/// The sums over `ranks` of these numbers; the numbers themselves if `ranks` is null.
std::vector<double> sum_over(StatisticsExchange* ranks, std::vector<double> own);

/// Mean and population variance of each channel over `rows` values.
struct ChannelStatistics {
  double rows = 0;
  std::vector<double> mean, variance;
};

/// What ChannelStatistics are made of. Moments of parts merge into those of the whole, without cancellation.
class ChannelMoments {
 public:
  explicit ChannelMoments(int64_t channels);

  /// Adds a part of `rows` values: its means, and its sums of squared deviations from them, each [channels]. Parts must
  /// come in the same order for the same bits. Source: Chan, Golub, LeVeque 1983, equation 2.1.
  void merge(double rows, const double* mean, const double* squares);

  /// Of this rank's values if `ranks` is null, else of those of all ranks, merged in the ranks' order: with the same
  /// bits on each. Throws c10::ValueError if there is one value a channel.
  ChannelStatistics statistics(StatisticsExchange* ranks) const;

 private:
  ChannelMoments shared(StatisticsExchange& ranks) const;

  double rows_ = 0;
  std::vector<double> mean_, squares_;
};

/// A tensor [N, C] or [N, C, H, W] in channels last, as [rows, channels], cut into chunks of rows that do not depend on
/// the number of threads. A chunk stays in a core's cache.
struct RowChunks {
  static constexpr int64_t kNumbers = 32768, kLeastRows = 16;

  explicit RowChunks(const Tensor& values)
      : channels(values.size(1)),
        rows(values.numel() / channels),
        chunk(std::max(kLeastRows, kNumbers / channels)),
        chunks((rows + chunk - 1) / chunk) {}

  int64_t first(int64_t index) const { return index * chunk; }
  int64_t rows_of(int64_t index) const { return std::min(chunk, rows - first(index)); }

  /// Calls run(index, first row, number of rows) for every chunk, on all threads.
  template <class Run>
  void for_each_chunk(const Run& run) const {
    at::parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) run(i, first(i), rows_of(i));
    });
  }

  int64_t channels, rows, chunk, chunks;
};

/// The moments of chunked rows. moments(first row, rows, sum, squares) sums the differences of a chunk from its first
/// row, and their squares, in the type Sum; value(row, channel) is a value.
template <class Sum, class Moments, class Value>
ChannelMoments moments_of(const RowChunks& layout, const Moments& moments, const Value& value) {
  const int64_t channels = layout.channels;
  std::vector<Sum> sums(static_cast<size_t>(2 * layout.chunks * channels));
  layout.for_each_chunk([&](int64_t i, int64_t first, int64_t rows) {
    Sum* to = sums.data() + 2 * i * channels;
    moments(first, rows, to, to + channels);
  });
  ChannelMoments merged(channels);
  std::vector<double> mean(channels), squares(channels);
  for (int64_t i = 0; i < layout.chunks; ++i) {
    const auto rows = static_cast<double>(layout.rows_of(i));
    for (int64_t c = 0; c < channels; ++c) {
      const double sum = sums[2 * i * channels + c], square = sums[(2 * i + 1) * channels + c];
      mean[c] = value(layout.first(i), c) + sum / rows;
      squares[c] = std::max(0.0, square - sum * sum / rows);
    }
    merged.merge(rows, mean.data(), squares.data());
  }
  return merged;
}

/// Throws c10::ValueError if statistics are of one value a channel.
void check_values(double rows, bool of_all_ranks);

/// The running statistics, by which evaluation normalises.
ChannelStatistics running_statistics(const BatchNormState& state);

/// Moves the running statistics by those of a batch, or notes these where the context defers (base/context.h), unless
/// it holds them or the batch is empty. The variance that runs is the unbiased one, of all ranks' values.
void move_running(const BatchNormState& state, const ChannelStatistics& batch);

/// Running statistics as an operation takes them that moves them itself: undefined, if the context leaves them.
struct MovedStatistics {
  Tensor mean, variance;
  double momentum = 0;  // 0: as they are, to the bit
};

/// To be called once for each batch in training, of `rows` values a channel, by operations that move the running
/// statistics themselves; others call move_running(). Counts the batch in state.batches if it moves them.
MovedStatistics begin_move(const BatchNormState& state, double rows);

/// To be called after such an operation: where the context defers, notes what it has found, [C] each.
void end_move(const BatchNormState& state, double rows, const Tensor& mean, const Tensor& inverse_deviation);

/// The statistics of the batches of a step, such as its micro-batches, as those of one batch: the running statistics
/// move once, by those of all values. Numbers: two of float64 a channel, in no tensor. Not thread-safe.
///
///   StatisticsBook book;
///   { ContextScope scope(deferring(book)); ...forward of each micro-batch... }
///   book.commit();
class StatisticsBook {
 public:
  void add(const BatchNormState& state, const ChannelStatistics& batch);

  /// The same of a device, in float64 [C] there.
  void add_later(const BatchNormState& state, double rows, const Tensor& mean, const Tensor& variance);

  /// Moves all, and counts one batch. The book is empty then.
  void commit();

 private:
  struct Entry {
    BatchNormState state;
    ChannelMoments moments;
  };
  struct Later {
    BatchNormState state;
    double rows;
    Tensor mean, variance;
  };
  std::map<const void*, Entry> entries_;  // by what runs
  std::vector<Later> later_;
};

/// The current context, but for what would move running statistics: that is noted in the book, which must outlive it.
Context deferring(StatisticsBook& book);

}  // namespace tandem::memory
