#include "tandem/data/detail/device_sender.h"

#include <ATen/core/Tensor.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace tandem::data {

void DeviceSender::send(Tensor& x) {
  if (device_.is_cpu() || !x.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device_.type());
  const auto device = device_.has_index() ? device_ : guard.getDevice();
  if (!stream_) stream_ = guard.getStreamFromGlobalPool(device);
  const c10::StreamGuard on(*stream_);
  x = x.to(device, /*non_blocking=*/true);
  sent_ = std::make_unique<c10::Event>(device.type());
  sent_->record(*stream_);
}

void DeviceSender::take(const Tensor& x) {
  if (device_.is_cpu() || x.is_cpu()) return;
  const auto current = c10::impl::VirtualGuardImpl(device_.type()).getStream(x.device());
  sent_->block(current);
  x.record_stream(current);
}

}  // namespace tandem::data
