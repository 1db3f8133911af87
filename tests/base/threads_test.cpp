#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "tandem/base/threads.h"

namespace {

// libtorch's parallel_for is a template: on one thread only, and silently, where its user is not compiled for OpenMP.
TEST(Threads, OurLoopsRunOnAsManyAsLibtorchHas) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer's build has no OpenMP";
#endif
  constexpr int kThreads = 3;
  at::set_num_threads(kThreads);
  std::mutex mutex;
  std::condition_variable all_came;
  int num_here = 0;
  at::parallel_for(0, kThreads, 1, [&](int64_t, int64_t) {
    std::unique_lock lock(mutex);
    ++num_here;
    all_came.notify_all();
    all_came.wait_for(lock, std::chrono::seconds(20), [&] { return num_here == kThreads; });
  });
  EXPECT_EQ(num_here, kThreads) << "bodies that ran at the same time";
}

TEST(Threads, RefusalIsHandledWhileAThreadIsStarted) {
  struct Started {
    explicit Started(int*) : is_handled(tandem::is_refusal_handled()) {}
    bool is_handled;
  };
  EXPECT_FALSE(tandem::is_refusal_handled());
  EXPECT_TRUE(tandem::start_thread<Started>(nullptr).is_handled);
  EXPECT_FALSE(tandem::is_refusal_handled());
}

TEST(Threads, ATryLeavesNoThread) { tandem::try_threads(3); }

}  // namespace
