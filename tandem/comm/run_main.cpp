#include "tandem/comm/run_main.h"

#include <c10/util/Logging.h>

#include <cstdlib>
#include <stdexcept>

#include "tandem/comm/detail/failure.h"

namespace tandem::comm {

int run_main(const std::function<int()>& body, const std::function<bool()>& stop_requested) {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = 3;
  try {
    return body();
  } catch (const std::exception& error) {
    return detail::report_failure(error, stop_requested);
  } catch (...) {
    return detail::report_failure(std::runtime_error("an exception of unknown type"), stop_requested);
  }
}

}  // namespace tandem::comm
