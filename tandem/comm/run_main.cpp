#include "tandem/comm/run_main.h"

#include <c10/util/Logging.h>

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "tandem/base/error.h"
#include "tandem/comm/detail/failure.h"

namespace tandem::comm {

namespace {

std::terminate_handler before_main = nullptr;
std::atomic_flag is_ending;

/// What a line without memory is made of.
std::atomic<void*> spare = nullptr;

void free_spare() noexcept { std::free(spare.exchange(nullptr)); }

[[noreturn]] void end_uncaught() {
  try {
    if (const auto exception = std::current_exception()) std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    end_process(error);
  } catch (...) {
  }
  if (before_main != nullptr) before_main();
  std::abort();
}

}  // namespace

void end_process(const std::exception& error) {
  static thread_local bool ends_here = false;
  int status = static_cast<int>(ExitCode::out_of_memory);
  if (ends_here) std::_Exit(status);         // the line itself has failed
  while (is_ending.test_and_set()) pause();  // another thread ends the process
  ends_here = true;
  free_spare();
  try {
    status = detail::report_failure(error);
  } catch (...) {
    constexpr std::string_view kText =  // there is no memory to tell more
        "error: memory cannot be allocated, by ulimit -v or for want of it: raise the limit, or make the job smaller\n";
    (void)!write(STDERR_FILENO, kText.data(), kText.size());
  }
  std::_Exit(status);
}

void watch_uncaught() noexcept {
  constexpr size_t kSpareBytes = 100'000;
  if (before_main != nullptr) return;
  before_main = std::set_terminate(&end_uncaught);
  spare = std::malloc(kSpareBytes);
}

int run_main(const std::function<int()>& body, const std::function<bool()>& stop_requested) {
  watch_uncaught();
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
