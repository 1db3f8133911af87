#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tandem/comm/local/local_backend.h"
#include "tandem/comm/process_group.h"

namespace tandem::comm {

/// Connects thread-ranks through shared memory. One object serves all ranks of a process.
class LocalWorld {
 public:
  explicit LocalWorld(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  c10::intrusive_ptr<c10d::ProcessGroup> connect(const std::string& name, int rank, int size);

  /// Aborts every group that was or will be connected by this object.
  void abort(const std::string& reason);

  /// Number of groups that still have a rank or wait for one to connect.
  int num_groups();

 private:
  /// What the ranks of a group share. The slot owns it until all ranks have connected; from then on the ranks own it.
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

/// Connects one rank of a group whose other ranks are imagined; see make_rehearsal_group().
c10::intrusive_ptr<c10d::ProcessGroup> connect_alone(int rank, int size, Transport transport);

/// Connects process-ranks, which meet at `store`: through Gloo, over the network interface that leads to `host`, where
/// rank 0 runs, unless GLOO_SOCKET_IFNAME names another one; and, unless `transport` is sockets, the collectives of
/// groups that are on one host through memory that their ranks share.
ProcessGroup::Connect process_connect(c10::intrusive_ptr<c10d::Store> store, std::chrono::milliseconds timeout,
                                      Transport transport, const std::string& host = "127.0.0.1");

}  // namespace tandem::comm
