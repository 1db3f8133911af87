#include "tandem/cli/bench/peer_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tandem/base/error.h"

namespace tandem::cli {
namespace fs = std::filesystem;

PeerProcess::PeerProcess(const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const auto& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw IoError("no pipe to a peer can be made");
  pid_ = fork();
  if (pid_ < 0) throw IoError("no process for a peer can be made");
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    dup2(ends[1], STDIN_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    execvp(words[0], words.data());
    _exit(127);
  }
  setpgid(pid_, pid_);  // the peer's own ranks end with it
  close(ends[1]);
  socket_ = ends[0];
}

PeerProcess::~PeerProcess() {
  close(socket_);
  kill(-pid_, SIGKILL);
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
  const std::string python = chosen != nullptr ? chosen : fs::exists(own) ? own.string() : "python3";
  return std::vector<std::string>{python, script.string()};
}

}  // namespace tandem::cli
