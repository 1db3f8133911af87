#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "tandem/base/context.h"
#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"

namespace tandem::comm {

/// Work, such as reading files, that may take longer than the group's timeout on some ranks. Every rank makes this
/// object, works, and calls end(), which returns when all ranks have called it.
///
///   rank 0   work ─────────────────────▶ end ┐
///   rank 1   work ──▶ end                    ├ the smallest answer, on all ranks
///   rank 2   work ─────────▶ end             ┘
///                 ↑        ↑        ↑          every quarter of the group's timeout the ranks exchange
///                                              "at work" or their answers, 8 bytes
///
/// The work runs on the calling thread, while a thread of this object exchanges the messages. A rank that is gone, or
/// does not come, is therefore detected within the timeout, as in any other call; a rank whose work never ends is not
/// detected. The group must not be used between the constructor and end(). The wire meter counts one all_reduce of one
/// int64, however long the work takes. Collective.
class JointWork {
 public:
  explicit JointWork(ProcessGroup& group, flight::Where where = flight::Where::current());

  /// Without end(), the other ranks time out as if this rank were gone.
  ~JointWork();
  JointWork(const JointWork&) = delete;
  JointWork& operator=(const JointWork&) = delete;

  /// Ends this rank's work, waits for the other ranks, and returns the smallest answer of all ranks. `answer` must be 0
  /// or more. Must be called once. Throws c10::DistBackendError if a rank is gone or does not come.
  int64_t end(int64_t answer);

 private:
  void keep_company(const Context& context);
  void stop();
  int64_t exchange(int64_t own);

  ProcessGroup& group_;
  const flight::Where where_;
  const Tensor word_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ending_ = false;
  std::exception_ptr fault_;
  std::thread companion_;
};

/// Runs `work` on every rank, as JointWork. If it throws an Error on some ranks, every rank throws that of the lowest
/// such rank, which its text names. Collective.
void jointly(ProcessGroup& group, const std::function<void()>& work, flight::Where where = flight::Where::current());

/// Runs `work` on rank 0, while the others wait. If it throws an Error, every rank throws that. Collective.
void on_leader(ProcessGroup& group, const std::function<void()>& work, flight::Where where = flight::Where::current());

}  // namespace tandem::comm
