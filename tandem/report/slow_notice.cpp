#include "tandem/report/slow_notice.h"

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <utility>

#include "tandem/base/log.h"
#include "tandem/base/threads.h"

namespace tandem::report {

struct SlowNotice::Timer {
  Timer(std::string text, std::chrono::milliseconds patience, Sink sink)
      : thread(start_thread([this, text = std::move(text), patience, sink = std::move(sink)] {
          std::unique_lock lock(mutex);
          if (!ended.wait_for(lock, patience, [this] { return has_ended; })) sink(text);
        })) {}
  ~Timer() {
    {
      const std::lock_guard lock(mutex);
      has_ended = true;
    }
    ended.notify_one();
    thread.join();
  }

  std::mutex mutex;
  std::condition_variable ended;
  bool has_ended = false;
  std::thread thread;  // the last member: it uses the others
};

SlowNotice::SlowNotice(std::string text, bool shown, std::chrono::milliseconds patience, Sink sink) {
  if (!shown) return;
  if (!sink) sink = log::info;
  try {
    timer_ = std::make_unique<Timer>(std::move(text), patience, std::move(sink));
  } catch (const std::system_error&) {
  }
}

SlowNotice::~SlowNotice() = default;

}  // namespace tandem::report
