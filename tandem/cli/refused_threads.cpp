#include <dlfcn.h>
#include <pthread.h>

#include "tandem/base/limits.h"
#include "tandem/base/threads.h"
#include "tandem/comm/run_main.h"

// Gloo, OpenMP's runtime and libtorch end the process in their own ways, or wait for ever, if the system refuses them a
// thread. The program's own pthread_create stands before the system's, for all libraries, and ends the process with the
// line and the status of a refusal. The sanitizers have one of their own.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                              void* argument) noexcept {
  using Create = decltype(&pthread_create);
  static const auto of_system = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  const int fault = of_system(thread, attributes, body, argument);
  if (fault != 0 && !tandem::is_refusal_handled()) {
    tandem::comm::end_process(tandem::refusal(tandem::Limited::threads, "a thread cannot be started", fault));
  }
  return fault;
}

#endif
