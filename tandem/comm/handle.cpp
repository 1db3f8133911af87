#include "tandem/comm/handle.h"

#include <c10/util/Exception.h>

#include <exception>
#include <utility>

namespace tandem::comm {

Handle::~Handle() { drop(); }

Handle::Handle(Handle&& other) noexcept : finish_(std::exchange(other.finish_, nullptr)) {}

Handle& Handle::operator=(Handle&& other) noexcept {
  if (this == &other) return *this;
  drop();
  finish_ = std::exchange(other.finish_, nullptr);
  return *this;
}

Tensor Handle::wait() {
  TORCH_CHECK(finish_, "handle: the operation was waited for before");
  const auto finish = std::exchange(finish_, nullptr);
  return finish();
}

void Handle::drop() noexcept {
  const auto finish = std::exchange(finish_, nullptr);
  if (!finish || std::uncaught_exceptions() > 0) return;
  try {
    finish();
  } catch (...) {
    // The flight record has the error, and no caller is left to report it to.
  }
}

}  // namespace tandem::comm
