#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tandem/comm/local/local_backend.h"
#include "tandem/comm/process_group.h"

namespace tandem::comm {

/// Thread-ranks over shared memory. One object of this kind serves all ranks of one process.
class LocalWorld {
 public:
  explicit LocalWorld(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  c10::intrusive_ptr<c10d::ProcessGroup> connect(const std::string& name, int rank, int size);

  /// Ends every group that was or will be made here.
  void abort(const std::string& reason);

  /// Groups that have a rank left, or wait for one that is to come.
  int num_groups();

 private:
  /// What the ranks of a group share. Kept here until all ranks have come, then by the ranks that are left.
  struct Slot {
    std::shared_ptr<LocalHub> until_all_came;
    std::weak_ptr<LocalHub> hub;
    int to_come = 0;
  };
  void forget_ended();

  std::mutex mutex_;
  std::map<std::string, Slot> slots_;
  std::optional<std::string> abort_reason_;
  const std::chrono::milliseconds timeout_;
};

/// Process-ranks on Gloo that meet at a store. They talk over the interface that leads to `host`, where rank 0 is;
/// GLOO_SOCKET_IFNAME names another.
ProcessGroup::Connect gloo_connect(c10::intrusive_ptr<c10d::Store> store, std::chrono::milliseconds timeout,
                                   const std::string& host = "127.0.0.1");

}  // namespace tandem::comm
