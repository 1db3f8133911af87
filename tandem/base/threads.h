#pragma once
#include <thread>
#include <utility>

namespace tandem {

/// True while this thread is inside start_thread(): a refused thread becomes an exception there. All other threads are
/// started by libraries, most of which end the process without a word, or hang, if the system refuses one.
bool is_refusal_handled() noexcept;

namespace detail {
struct RefusalScope {
  RefusalScope() noexcept;
  ~RefusalScope();
  RefusalScope(const RefusalScope&) = delete;
  RefusalScope& operator=(const RefusalScope&) = delete;
};
}  // namespace detail

/// Starts a thread; all threads of this project are started here. Throws std::system_error if the system refuses it,
/// which refusal_in() turns into the user's line.
template <class Thread = std::thread, class Body>
Thread start_thread(Body&& body) {
  const detail::RefusalScope scope;
  return Thread(std::forward<Body>(body));
}

/// Starts `count` threads that end when all run. Throws std::system_error if the system refuses one. OpenMP's runtime
/// ends the process in that case, so a team is tried before it is formed.
void try_threads(int count);

}  // namespace tandem
