#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace tandem::comm {

/// One thread that runs tasks in order. The first task starts the thread. Tasks must not throw.
class TaskQueue {
 public:
  TaskQueue() = default;
  ~TaskQueue();  // runs the tasks that are left
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  void push(std::function<void()> task);

  /// Returns when all tasks have ended.
  void drain();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  size_t unfinished_ = 0;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace tandem::comm
