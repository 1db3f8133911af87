#include "tandem/cli/bench/peer_process.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tandem/base/error.h"
#include "tandem/launch/child.h"

namespace tandem::cli {
namespace fs = std::filesystem;

PeerProcess::PeerProcess(const std::vector<std::string>& command) {
  const auto program = launch::find_program(command.at(0));
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw IoError("no pipe to a peer can be made");
  socket_ = ends[0];
  launch::ChildOptions options;
  options.path = program.empty() ? command[0] : program;
  options.arguments = command;
  options.input = options.output = ends[1];
  sigprocmask(SIG_SETMASK, nullptr, &options.mask);
  try {
    pid_ = launch::start_child(options);
  } catch (...) {
    close(ends[0]);
    close(ends[1]);
    throw;
  }
  close(ends[1]);
}

PeerProcess::~PeerProcess() {
  close(socket_);
  kill(-pid_, SIGKILL);  // with the processes that it has started
  waitpid(pid_, nullptr, 0);
}

void PeerProcess::write_line(const std::string& line) {
  const auto text = line + "\n";
  if (send(socket_, text.data(), text.size(), MSG_NOSIGNAL) < 0) throw IoError("a peer has ended");
}

std::optional<std::string> PeerProcess::read_line() {
  for (;;) {
    if (const auto end = buffer_.find('\n'); end != std::string::npos) {
      const auto line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    char text[4096];
    const auto count = read(socket_, text, sizeof text);
    if (count <= 0) return std::nullopt;
    buffer_.append(text, static_cast<size_t>(count));
  }
}

std::optional<std::vector<std::string>> peer_command(const std::string& bench) {
  const fs::path sources = TANDEM_SOURCES;
  const auto script = sources / "bench" / bench / "peers.py", own = sources / ".venv/bin/python";
  if (!fs::exists(script)) return std::nullopt;
  const char* chosen = std::getenv("TANDEM_PYTHON");
  const bool is_chosen = chosen != nullptr && *chosen != '\0';
  const std::string python = is_chosen ? chosen : fs::exists(own) ? own.string() : "python3";
  return std::vector<std::string>{python, script.string()};
}

}  // namespace tandem::cli
