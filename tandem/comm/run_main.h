#pragma once
#include <exception>
#include <functional>
#include <type_traits>

namespace tandem::comm {

/// Runs `body` and returns the exit status for main(): the status that `body` returns, or 0. An exception becomes one
/// line on stderr, `error: what[where] is X, wanted Y (rank r of n): remedy`, and the matching status (see ExitCode);
/// torchrun's error file is written if there is one.
///
///   int main() {
///     return comm::run_main([] { comm::run_ranks(4, train); });
///   }
///
/// libtorch's own warnings and errors, which come with stack traces, are turned off unless TORCH_CPP_LOG_LEVEL is set.
/// `stop_requested`: see report_failure().
int run_main(const std::function<int()>& body, const std::function<bool()>& stop_requested = {});

/// For places that no exception can leave: ends the process at once with an exception's line and status.
[[noreturn]] void end_process(const std::exception& error);

/// Makes an exception that nothing catches, as on a thread of a library or in a main() without run_main(), end the
/// process with end_process(), in place of abort() and a stack trace: destructors do not run, and what stdout has
/// buffered is lost. run_main(), run_ranks() and join_world() call it; it may be called before main(). Replaces the
/// program's terminate handler, which gets what is no std::exception; a handler that is set later counts.
void watch_uncaught() noexcept;

template <class Body>
requires std::is_void_v<std::invoke_result_t<const Body&>>
int run_main(const Body& body) {
  return run_main(std::function<int()>([&] {
    body();
    return 0;
  }));
}

}  // namespace tandem::comm
