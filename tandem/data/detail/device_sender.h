#pragma once
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>

#include "tandem/base/tensor.h"

namespace tandem::data {

/// Copies tensors to a device on a stream of its own. Does nothing for the CPU. To be used by one thread.
class DeviceSender {
 public:
  explicit DeviceSender(c10::Device device) : device_(device) {}

  /// Begins to copy `x`, which is then the copy; not if it is there already. Nobody may write to what x was.
  void send(Tensor& x);

  /// From here on the current stream may read what was sent: it waits for what was sent last.
  void take(const Tensor& x);

 private:
  c10::Device device_;
  std::optional<c10::Stream> stream_;
  std::unique_ptr<c10::Event> sent_;
};

}  // namespace tandem::data
