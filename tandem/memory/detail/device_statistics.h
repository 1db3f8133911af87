#pragma once
#include "tandem/memory/channel_statistics.h"

// The statistics of channels where the host does not wait for them: as channel_statistics.h has them, of the same
// operations in the same order, in float64 [C] on the tensors' device.
namespace tandem::memory::detail {

/// Mean and population variance of each channel over `rows` values.
struct DeviceStatistics {
  double rows;
  Tensor mean, variance;
};

class DeviceMoments {
 public:
  /// `like` [C]: a tensor on the device.
  explicit DeviceMoments(const Tensor& like);

  /// Those of a batch [N, C, ...], which may be empty.
  static DeviceMoments of_batch(const Tensor& x);

  /// See ChannelMoments.
  void merge(double rows, const Tensor& mean, const Tensor& squares);

  /// Of all ranks: two messages a call, the rows of each rank, which the host needs, and 2 C numbers. Throws as
  /// ChannelMoments.
  DeviceStatistics statistics(StatisticsExchange* ranks) const;

 private:
  DeviceMoments shared(StatisticsExchange& ranks) const;

  double rows_ = 0;
  Tensor mean_, squares_;
};

/// See memory::move_running().
void move_running(const BatchNormState& state, const DeviceStatistics& batch);

}  // namespace tandem::memory::detail
