#include "tandem/storage/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/quote.h"
#include "tandem/storage/file_io.h"

namespace tandem::storage {
namespace {

/// Appends the contents of `from` to `to`. Returns "" on success, else the system's reason.
std::string copy_all(int from, int to) {
  std::vector<char> bytes(1 << 20);
  for (off_t offset = 0;;) {
    const auto count = pread(from, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::strerror(errno);
    if (count == 0) return "";
    if (auto reason = append_whole(to, {bytes.data(), static_cast<size_t>(count)}); !reason.empty()) return reason;
    offset += count;
  }
}

}  // namespace

LogFile::LogFile(std::filesystem::path path, Start start, std::string lost)
    : path_(std::move(path)), lost_(std::move(lost)), descriptor_(open_log(path_, start == Start::append)) {}

LogFile::~LogFile() { close(descriptor_); }

void LogFile::append(std::string_view record) {
  const auto reason = append_whole(descriptor_, record);
  if (reason.empty() || std::exchange(warned_, true)) return;
  log::warn(lost_ + ": cannot write " + quote(path_.string()) + ": " + reason);
}

bool LogFile::is_in_place() const { return storage::is_in_place(descriptor_, path_); }

void LogFile::put_back() {
  make_folders(path_.parent_path());
  std::error_code ignored;
  const bool is_missing = !std::filesystem::exists(path_, ignored);
  const int descriptor = open_log(path_, true);
  const auto reason = is_missing ? copy_all(descriptor_, descriptor) : "";
  if (!reason.empty()) {
    close(descriptor);
    unlink(path_.c_str());
    throw IoError("cannot write " + quote(path_.string()) + ": " + reason);
  }
  close(std::exchange(descriptor_, descriptor));
}

bool LogFile::ends_inside_a_line() const {
  const auto size = lseek(descriptor_, 0, SEEK_END);
  char last = '\n';
  return size > 0 && pread(descriptor_, &last, 1, size - 1) == 1 && last != '\n';
}

}  // namespace tandem::storage
