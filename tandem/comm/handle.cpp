#include "tandem/comm/handle.h"

#include <c10/util/Exception.h>

namespace tandem::comm {

Tensor Handle::wait() {
  TORCH_CHECK(finish_, "handle: the operation was waited for before");
  const auto finish = std::move(finish_);
  finish_ = nullptr;
  return finish();
}

}  // namespace tandem::comm
