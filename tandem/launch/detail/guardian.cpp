#include "tandem/launch/detail/guardian.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "tandem/base/limits.h"

namespace tandem::launch::detail {
namespace {

/// Messages are process group ids: positive to add, negative to remove. Makes system calls only: after the fork, locks
/// of other threads may be held for ever.
[[noreturn]] void guard(int socket) {
  setpgid(0, 0);
  close(STDIN_FILENO);
  close(STDOUT_FILENO);  // so that a reader of our output does not wait for this process
  close(STDERR_FILENO);
  std::array<pid_t, Guardian::kMostGroups> groups{};
  size_t count = 0;
  pid_t message = 0;
  for (ssize_t size; (size = read(socket, &message, sizeof message)) != 0;) {
    if (size != sizeof message) {
      if (errno == EINTR) continue;
      break;
    }
    if (message > 0 && count < groups.size()) groups[count++] = message;
    if (message < 0) count = std::remove(groups.begin(), groups.begin() + count, -message) - groups.begin();
  }
  for (size_t i = 0; i < count; ++i) kill(-groups[i], SIGKILL);
  _exit(0);
}

}  // namespace

Guardian::Guardian() {
  int ends[2];
  check_descriptor(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), "a socket cannot be made");
  process_ = fork();
  if (process_ == 0) {
    close(ends[1]);
    guard(ends[0]);
  }
  const int fault = errno;
  close(ends[0]);
  socket_ = ends[1];
  if (process_ > 0) return;
  close(socket_);
  throw refusal(Limited::processes, "a process cannot be started", fault);
}

Guardian::~Guardian() {
  close(socket_);
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guardian::add(pid_t group) const { send(group); }
void Guardian::remove(pid_t group) const { send(-group); }

void Guardian::send(pid_t message) const {
  // MSG_NOSIGNAL: the job must not end by SIGPIPE if somebody has killed the guardian.
  (void)!::send(socket_, &message, sizeof message, MSG_NOSIGNAL);
}

}  // namespace tandem::launch::detail
