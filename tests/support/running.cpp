#include "tests/support/running.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace tandem::test {
namespace {

bool is_launchers(const std::string& name) {
  for (const auto prefix : {"TORCHELASTIC_", "SLURM_", "OMPI_", "PMI_", "PMIX_", "MASTER_"}) {
    if (name.starts_with(prefix)) return true;
  }
  for (const auto known : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"}) {
    if (name == known) return true;
  }
  return false;
}

std::vector<std::string> environment_with(const Environment& changes) {
  std::vector<std::string> result;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable, name = text.substr(0, text.find('='));
    if (!is_launchers(name) && !changes.contains(name)) result.push_back(text);
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

std::string read_all(int file) {
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = read(file, buffer, sizeof buffer)) > 0;) text.append(buffer, count);
  return text;
}

}  // namespace

void read_both(int out, int err, Ended& ended) {
  std::thread other([&] { ended.err = read_all(err); });
  ended.out = read_all(out);
  other.join();
}

Running::Running(std::vector<std::string> command, const Environment& environment) {
  auto variables = environment_with(environment);
  auto argument_pointers = pointers(command), variable_pointers = pointers(variables);
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is ended leaves nothing behind
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    execvpe(argument_pointers[0], argument_pointers.data(), variable_pointers.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  out_ = out[0];
  err_ = err[0];
}

Running::~Running() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(out_);
  close(err_);
}

void Running::signal(int number) const {
  if (pid_ > 0) kill(pid_, number);  // -1 would be every process
}

std::string Running::read_line() {
  std::string line;
  for (char c; read(out_, &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

Ended Running::wait() {
  Ended ended;
  read_both(out_, err_, ended);
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

Ended run_command(const std::vector<std::string>& words, const Environment& environment) {
  return Running(words, environment).wait();
}

bool is_gone_soon(pid_t pid) {
  const auto is_there = [&] {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(file, text);
    const auto name_end = text.rfind(')');
    return name_end != text.npos && text.substr(name_end + 2, 1) != "Z";
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (is_there() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return !is_there();
}

}  // namespace tandem::test
