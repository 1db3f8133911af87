#pragma once
#include <c10/core/Stream.h>

#include <functional>
#include <optional>

namespace tandem::comm::detail {

/// Where work of a rank runs that another thread gives to its device: on a stream beside the caller's, which begins
/// where the caller's stream was. Whoever uses its results must make their own stream wait, as c10::ivalue::Future does
/// with the storages that it is completed with. Where ranks compute on the CPU there is nothing to do.
class QueueStream {
 public:
  /// To be called where the work is given away, and what is returned on the other thread.
  std::function<void()> beside(std::function<void()> work);

 private:
  std::optional<c10::Stream> stream_;
};

}  // namespace tandem::comm::detail
