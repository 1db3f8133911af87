#include "tests/cli/warm_start.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <stdexcept>

#include "tandem/cli/program.h"
#include "tandem/cli/stop_signals.h"

namespace tandem::test {
namespace {

constexpr size_t kFiles = 3;            // stdout, stderr, where the exit status goes
constexpr size_t kMostBytes = 1 << 16;  // of a request

using Files = std::array<int, kFiles>;

/// "words\0...\0": the working folder, then the words.
struct Request {
  std::vector<std::string> texts;
  Files files{};
};

/// A message of one part, with room for the files beside it.
msghdr message_of(iovec& part, std::span<char> control) {
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  return message;
}

bool receive(int socket, Request& request) {
  static std::array<char, kMostBytes> text;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(Files))];
  iovec part{text.data(), text.size()};
  auto message = message_of(part, control);
  const auto count = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (count <= 0) return false;
  std::memcpy(request.files.data(), CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(Files));
  for (const char* at = text.data(); at < text.data() + count; at += request.texts.back().size() + 1)
    request.texts.emplace_back(at);
  return true;
}

[[noreturn]] void become_program(const Request& request) {
  std::signal(SIGCHLD, SIG_DFL);
  std::signal(SIGXFSZ, SIG_IGN);  // as main() does
  std::filesystem::current_path(request.texts.at(0));
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  dup2(request.files[0], STDOUT_FILENO);
  dup2(request.files[1], STDERR_FILENO);
  for (const int file : request.files) close(file);
  const std::vector<std::string> words(request.texts.begin() + 1, request.texts.end());
  if (!words.empty() && cli::hears_stop_signals(words[0])) cli::stop_signals::hear();
  std::exit(cli::run_program(words));
}

/// Waits for the program on a process of its own, so that the next request need not.
[[noreturn]] void run_and_report(int socket, const Request& request) {
  close(socket);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGCHLD, SIG_DFL);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    become_program(request);
  }
  close(request.files[0]);
  close(request.files[1]);
  int status = 0;
  waitpid(child, &status, 0);
  const int result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (write(request.files[2], &result, sizeof result) != sizeof result) _exit(1);
  _exit(0);
}

[[noreturn]] void serve(int socket) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGCHLD, SIG_IGN);  // nobody waits for the reporters
  for (Request request; receive(socket, request); request = {}) {
    if (fork() == 0) run_and_report(socket, request);
    for (const int file : request.files) close(file);
  }
  _exit(0);
}

int start_server() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  const pid_t server = fork();
  if (server < 0) return -1;
  if (server == 0) {
    close(ends[0]);
    serve(ends[1]);
  }
  close(ends[1]);
  return ends[0];
}

int server = -1;

/// Starts the server before the first test, when libtorch has no threads and no state yet.
class ServerStart : public ::testing::Environment {
  void SetUp() override { server = start_server(); }
};
[[maybe_unused]] const auto* const registered = ::testing::AddGlobalTestEnvironment(new ServerStart);

void send_request(const std::vector<std::string>& words, const Files& files) {
  std::string text = std::filesystem::current_path().string() + '\0';
  for (const auto& word : words) text += word + '\0';
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(Files))] = {};
  iovec part{text.data(), text.size()};
  auto message = message_of(part, control);
  auto* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(Files));
  std::memcpy(CMSG_DATA(header), files.data(), sizeof(Files));
  if (sendmsg(server, &message, MSG_NOSIGNAL) < 0) throw std::runtime_error("the warm process is gone");
}

}  // namespace

Ended run_warm(const std::vector<std::string>& words) {
  std::array<std::array<int, 2>, kFiles> pipes;
  Files theirs;
  for (size_t i = 0; i < kFiles; ++i) {
    if (pipe2(pipes[i].data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    theirs[i] = pipes[i][1];
  }
  send_request(words, theirs);
  for (const int file : theirs) close(file);
  Ended ended;
  read_both(pipes[0][0], pipes[1][0], ended);
  const bool is_told = read(pipes[2][0], &ended.status, sizeof ended.status) == sizeof ended.status;
  for (const auto& pipe : pipes) close(pipe[0]);
  if (!is_told) throw std::runtime_error("the warm process gave no status");
  return ended;
}

}  // namespace tandem::test
