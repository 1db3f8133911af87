#pragma once
#include <sys/types.h>

namespace tandem::launch::detail {

/// A small process that outlives this one by a moment: when this process ends in any way, even by SIGKILL, the guardian
/// kills the process groups that are still on its list. The kernel's parent-death signal would reach only the children,
/// not the processes that they started.
class Guardian {
 public:
  Guardian();   // throws a refusal (base/limits.h)
  ~Guardian();  // ends the guardian, which kills the groups on its list
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  // One system call each, so they may be called between fork and exec.
  void add(pid_t group) const;
  void remove(pid_t group) const;

  static constexpr int kMostGroups = 1024;

 private:
  void send(pid_t message) const;

  pid_t process_ = -1;
  int socket_ = -1;
};

}  // namespace tandem::launch::detail
