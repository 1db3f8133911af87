#include "tandem/launch/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "tandem/base/env.h"
#include "tandem/base/error.h"
#include "tandem/base/limits.h"
#include "tandem/launch/detail/guardian.h"
#include "tandem/launch/stop_rule.h"

extern char** environ;

namespace tandem::launch {
namespace {

std::string reason(int fault) { return std::generic_category().message(fault); }

/// This process's variables with some replaced, as "NAME=value".
std::vector<std::string> merged_environment(const Variables& changes) {
  std::vector<std::string> result;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const auto name = text.substr(0, text.find('='));
    const bool is_replaced = std::ranges::any_of(changes, [&](const auto& change) { return change.first == name; });
    if (!is_replaced) result.emplace_back(text);
  }
  for (const auto& [name, value] : changes) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (auto& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

struct Pipe {
  int ends[2];
  Pipe() { check_descriptor(pipe2(ends, O_CLOEXEC), "a pipe cannot be made"); }
  ~Pipe() {
    close_write();
    close(ends[0]);
  }
  void close_write() {
    if (ends[1] >= 0) close(ends[1]);
    ends[1] = -1;
  }
};

/// Restores the default action: this program's handler would swallow a signal that comes before exec.
void reset(int signal) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  if (action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_handler = SIG_DFL;
  sigaction(signal, &action, nullptr);
}

/// Runs between fork and exec. Makes system calls only, because locks of other threads may be held for ever.
[[noreturn]] void become(const ChildOptions& options, char** arguments, char** environment, pid_t parent, int faults) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(128 + SIGKILL);  // the parent ended before prctl took effect
  if (options.guardian) options.guardian->add(getpid());
  const int null = options.input >= 0 ? -1 : open("/dev/null", O_RDONLY);
  dup2(null >= 0 ? null : options.input, STDIN_FILENO);
  if (null > STDIN_FILENO) close(null);
  if (options.output >= 0) dup2(options.output, STDOUT_FILENO);
  for (const int signal : kStopSignals) reset(signal);
  sigprocmask(SIG_SETMASK, &options.mask, nullptr);
  execve(options.path.c_str(), arguments, environment);
  const int fault = errno;
  (void)!write(faults, &fault, sizeof fault);
  _exit(127);
}

}  // namespace

pid_t start_child(const ChildOptions& options) {
  auto arguments = options.arguments;
  auto environment = merged_environment(options.environment);
  auto argument_pointers = pointers(arguments), environment_pointers = pointers(environment);
  Pipe faults;  // exec closes it
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw refusal(Limited::processes, "a process cannot be started", errno);
  if (child == 0) become(options, argument_pointers.data(), environment_pointers.data(), parent, faults.ends[1]);
  setpgid(child, child);  // in both processes, so that it is done before either goes on
  faults.close_write();
  int fault = 0;
  ssize_t count;
  do count = read(faults.ends[0], &fault, sizeof fault);
  while (count < 0 && errno == EINTR);
  if (count != sizeof fault) return child;
  if (options.guardian) options.guardian->remove(child);
  waitpid(child, nullptr, 0);
  throw UsageError("command '" + options.path + "' cannot be run, wanted a program", reason(fault));
}

std::string find_program(const std::string& name) {
  if (name.find('/') != name.npos) return name;
  auto folders = env::get("PATH").value_or("/usr/local/bin:/usr/bin:/bin") + ":";
  for (size_t colon; (colon = folders.find(':')) != folders.npos; folders.erase(0, colon + 1)) {
    const auto path = std::filesystem::path(colon == 0 ? "." : folders.substr(0, colon)) / name;
    std::error_code error;
    if (access(path.c_str(), X_OK) == 0 && !std::filesystem::is_directory(path, error)) return path.string();
  }
  return "";
}

std::optional<int> reap_child(pid_t child) {
  siginfo_t info{};
  if (waitid(P_PID, child, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return std::nullopt;
  kill(-child, SIGKILL);  // before reaping, while no other process can get its id
  waitpid(child, nullptr, 0);
  return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

}  // namespace tandem::launch
