#include "tandem/cli/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/train/file_io.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", &parts);
  return text;
}

/// a .. z, aa .. zz, ...
std::string letters(int number) {
  std::string text;
  for (++number; number > 0; number = (number - 1) / 26)
    text.insert(text.begin(), static_cast<char>('a' + (number - 1) % 26));
  return text;
}

/// What a run opens or fills in its folder. The other files it replaces, links too.
constexpr const char* kWrittenIn[] = {".lock", "checkpoints", "events", "flight", "log.jsonl"};

[[noreturn]] void fail(const fs::path& folder, const std::error_code& error) {
  throw IoError("run's folder '" + folder.string() + "' cannot be made: " + error.message(), "name another with out=");
}

}  // namespace

fs::path make_run_folder(const std::string& out) {
  std::error_code error;
  if (!out.empty()) {
    fs::create_directories(out, error);
    if (error) fail(out, error);
    for (const char* name : kWrittenIn) train::refuse_link(fs::path(out) / name);
    return out;
  }
  fs::create_directories("runs", error);
  if (error) fail("runs", error);
  for (int number = 0;; ++number) {
    const fs::path folder = fs::path("runs") / (today() + "-" + letters(number));
    if (fs::create_directory(folder, error)) return folder;
    if (error) fail(folder, error);
  }
}

FolderLock::FolderLock(const fs::path& folder)
    : file_(open((folder / ".lock").c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644)) {
  if (file_ < 0) train::refuse_link(folder / ".lock");
  if (file_ < 0 || flock(file_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  close(file_);
  throw SettingsError("out is '" + folder.string() + "', in which another run is at work, wanted a folder of its own",
                      "wait for that run to end, or name another folder");
}

FolderLock::~FolderLock() {
  if (file_ >= 0) close(file_);
}

void write_run_file(const fs::path& path, const std::string& text) {
  try {
    train::write_text_file(path, text);
  } catch (const IoError& error) {
    log::warn("'" + path.string() + "' could not be written: " + message_of(error));
  }
}

}  // namespace tandem::cli
