#pragma once
#include <sys/types.h>

namespace tandem::launch::detail {

/// A tiny process that outlives this one by a moment: when this process ends in whatever way, SIGKILL too, it kills the
/// process groups that are still on its list. The kernel's own parent-death signal reaches only the children, not what
/// they have started.
class Guardian {
 public:
  Guardian();   // throws IoError
  ~Guardian();  // it ends, and kills what is on the list
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  // One system call each: may be called between fork and exec.
  void add(pid_t group) const;
  void remove(pid_t group) const;

  static constexpr int kMostGroups = 1024;

 private:
  void send(pid_t message) const;

  pid_t process_ = -1;
  int socket_ = -1;
};

}  // namespace tandem::launch::detail
