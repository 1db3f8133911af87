#include "tandem/comm/local/task_queue.h"

#include "tandem/base/threads.h"

namespace tandem::comm {

TaskQueue::~TaskQueue() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void TaskQueue::push(std::function<void()> task) {
  if (!thread_.joinable()) thread_ = start_thread([this] { run(); });
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    ++unfinished_;
  }
  changed_.notify_all();
}

void TaskQueue::drain() {
  if (!thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return unfinished_ == 0; });
}

void TaskQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_ending_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
    if (--unfinished_ == 0) changed_.notify_all();
  }
}

}  // namespace tandem::comm
