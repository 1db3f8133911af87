#include "tandem/storage/named_file.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <span>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/storage/detail/descriptor.h"
#include "tandem/storage/file_io.h"

namespace tandem::storage {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook{20}, kLongWait{1000};

std::chrono::milliseconds pipe_patience{5000};

struct Advice {
  int error;
  const char* text;
};

constexpr std::array<Advice, 5> kAdvice = {{{ENOTDIR, "a part of the path is no folder"},
                                            {ELOOP, "the links on the path lead to each other"},
                                            {ENAMETOOLONG, "choose a shorter name"},
                                            {ENOSPC, "free some space there or choose another folder"},
                                            {EDQUOT, "free some space there or choose another folder"}}};

[[noreturn]] void fail(std::string_view what, const fs::path& path, const char* verb, const std::string& why) {
  throw IoError(std::string(what) + " " + quote(path.string()) + " cannot be " + verb, why);
}

std::string reason(int error) {
  std::string text = error == EISDIR ? "it is a folder" : std::strerror(error);
  for (const auto& advice : kAdvice) {
    if (advice.error == error) text.append("; ").append(advice.text);
  }
  return text;
}

/// Names a file in the error of an operation on it.
struct Named {
  std::string_view what;
  const fs::path& path;
  const char* verb;

  [[noreturn]] void fail(int error) const { storage::fail(what, path, verb, reason(error)); }
  [[noreturn]] void fail(const std::string& why) const { storage::fail(what, path, verb, why); }
};

/// While it lives, a pipe's reader that has gone is an error of write() and no signal, which would end the process.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    constexpr timespec kAtOnce{};
    while (sigismember(&before_, SIGPIPE) == 0 && sigtimedwait(&pipe_, nullptr, &kAtOnce) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  sigset_t pipe_, before_;
};

/// Such as /dev/stdout and the names that a shell gives to pipes: what they lead to has no other name.
bool names_an_open_file(const fs::path& path) {
  const auto& name = path.native();
  return name.starts_with("/dev/std") || name.starts_with("/dev/fd/") || name.starts_with("/proc/");
}

/// The path behind the links that the last part of `path` may be.
fs::path target_of(fs::path path) {
  constexpr int kMostLinks = 40;  // as many as Linux follows
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, error); ++i)
    path = path.parent_path() / read_symlink(path, error);
  return path;
}

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

/// Waits for one of `events`. Returns those that have come.
short wait_for(int descriptor, short events, std::chrono::milliseconds most) {
  pollfd entry{descriptor, events, 0};
  return poll(&entry, 1, static_cast<int>(most.count())) > 0 ? entry.revents : short{0};
}

/// Reads what has arrived: the number of bytes; 0 if no process writes; -1 if one does, but has sent nothing yet.
ssize_t read_some(const Named& file, int descriptor, std::span<char> part) {
  for (;;) {
    const auto count = read(descriptor, part.data(), part.size());
    if (count >= 0) return count;
    if (errno == EAGAIN) return -1;
    if (errno != EINTR) file.fail(errno);
  }
}

/// Reads to the end. `has_writer`: false for a pipe, whose end comes after a process has opened it for writing.
std::string read_all(const Named& file, int descriptor, bool has_writer, uint64_t limit) {
  const auto end = Clock::now() + pipe_patience;
  std::string text;
  std::array<char, 1 << 16> part;
  while (text.size() <= limit) {
    const auto count = read_some(file, descriptor, part);
    if (count == 0 && has_writer) break;
    if (count == 0) {
      has_writer = (wait_for(descriptor, POLLIN, kLook) & POLLHUP) != 0;  // one has been there
      if (!has_writer && Clock::now() > end) file.fail("no process writes to this pipe; start its writer first");
      continue;
    }
    has_writer = true;
    if (count < 0) {
      wait_for(descriptor, POLLIN, kLongWait);
    } else {
      text.append(part.data(), static_cast<size_t>(count));
    }
  }
  return text;
}

/// True for what is there and is no regular file. Throws IoError if it cannot be written.
bool is_written_in_place(const Named& file) {
  struct stat about {};
  const bool exists = stat(file.path.c_str(), &about) == 0, is_open = names_an_open_file(file.path);
  if (!exists && (errno != ENOENT || is_open)) file.fail(errno);
  if (!exists) return false;
  if (S_ISDIR(about.st_mode)) file.fail(EISDIR);
  if (S_ISSOCK(about.st_mode)) file.fail("it is a socket");
  if (access(file.path.c_str(), W_OK) != 0) file.fail(errno);
  return is_open || !S_ISREG(about.st_mode);
}

/// Opens for writing without waiting for a pipe's reader; a reader may come a little later.
int open_in_place(const Named& file) {
  const auto end = Clock::now() + pipe_patience;
  for (;;) {
    const int descriptor = open(file.path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK);
    if (descriptor >= 0) return descriptor;
    const int error = errno;
    std::error_code ignored;
    if (error != ENXIO || !fs::is_fifo(file.path, ignored)) file.fail(error);
    if (Clock::now() > end) file.fail("no process reads from this pipe; start its reader first");
    std::this_thread::sleep_for(kLook);
  }
}

void write_in_place(const Named& file, std::string_view text) {
  const NoPipeSignal no_signal;
  const detail::Descriptor opened{open_in_place(file)};
  while (!text.empty()) {
    const auto count = write(opened.number(), text.data(), text.size());
    if (count > 0) text.remove_prefix(static_cast<size_t>(count));
    if (count < 0 && errno == EAGAIN) {
      wait_for(opened.number(), POLLOUT, kLongWait);
    } else if (count < 0 && errno != EINTR) {
      file.fail(errno);
    }
  }
}

}  // namespace

std::string read_named_file(std::string_view what, const fs::path& path, uint64_t limit) {
  const Named file{what, path, "read"};
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) file.fail(errno);
  const detail::Descriptor opened{descriptor};
  struct stat about {};
  if (fstat(descriptor, &about) != 0) file.fail(errno);
  if (S_ISDIR(about.st_mode)) file.fail(EISDIR);
  auto text = read_all(file, descriptor, !S_ISFIFO(about.st_mode), limit);
  if (text.size() <= limit) return text;
  throw DataError(std::string(what) + " " + quote(path.string()) + " has more than " + std::to_string(limit) +
                  " bytes, wanted less");
}

void write_named_file(std::string_view what, const fs::path& path, std::string_view text) {
  const Named file{what, path, "written"};
  if (is_written_in_place(file)) return write_in_place(file, text);
  try {
    write_text_file(target_of(path), text);
  } catch (const IoError& error) {
    file.fail(error.what());
  }
}

void write_named_file(std::string_view what, const fs::path& path,
                      const std::function<void(const fs::path& unfinished)>& write) {
  const Named file{what, path, "written"};
  if (is_written_in_place(file)) file.fail("it is no regular file");
  const auto target = target_of(path), unfinished = part_of(target, ".unfinished");
  try {
    write(unfinished);
    rename_over(unfinished, target);
  } catch (...) {
    std::error_code ignored;
    fs::remove(unfinished, ignored);
    throw;
  }
}

void check_named_file(std::string_view what, const fs::path& path) {
  const Named file{what, path, "written"};
  if (is_written_in_place(file)) return;
  // A file is written beside its place and renamed. The dot at the end finds out whether the folder is one.
  if (access((folder_of(target_of(path)) / ".").c_str(), W_OK | X_OK) == 0) return;
  if (errno == ENOENT) file.fail(std::string(std::strerror(ENOENT)) + "; make its folder first");
  file.fail(errno);
}

void set_pipe_patience(std::chrono::milliseconds patience) { pipe_patience = patience; }

}  // namespace tandem::storage
