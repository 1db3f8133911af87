#include "tandem/comm/detail/queue_stream.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>
#include <optional>

#include "tandem/base/computing_device.h"

namespace tandem::comm::detail {
namespace {

/// While it lives, the calling thread's stream is `stream`, from where the event was on. A device that has failed fails
/// the work itself, which tells of it.
class Beside {
 public:
  Beside(const c10::Stream& stream, const c10::Event& begun) {
    try {
      scope_.emplace(stream);
      begun.block(stream);
    } catch (const std::exception&) {
    }
  }

 private:
  std::optional<c10::StreamGuard> scope_;
};

}  // namespace

std::function<void()> QueueStream::beside(std::function<void()> work) {
  const auto own = own_stream();
  if (!own) return work;
  const auto device = own->device();
  if (!stream_ || stream_->device() != device) {
    stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  }
  const auto begun = std::make_shared<c10::Event>(device.type());
  begun->record(*own);
  return [begun, stream = *stream_, work = std::move(work)] {
    const Beside scope(stream, *begun);
    work();
  };
}

}  // namespace tandem::comm::detail
