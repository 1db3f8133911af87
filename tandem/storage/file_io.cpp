#include "tandem/storage/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"

namespace tandem::storage {
namespace {

constexpr size_t kChunk = 4 << 20;  // bytes per system call; hooks are called in between

FileHook hook;

void announce(std::string_view operation, const std::filesystem::path& path) {
  if (hook) hook(operation, path);
}

[[noreturn]] void fail(std::string_view verb, const std::filesystem::path& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  throw IoError("cannot " + std::string(verb) + " " + quote(path.string()) + ": " + std::strerror(error),
                full ? "free some space there or choose another folder" : "");
}

[[noreturn]] void fail_for_link(const std::filesystem::path& path) {
  throw IoError(quote(path.string()) + " is a link, wanted a file or folder of the run's own",
                "remove the link (the run's folder itself may be one)");
}

bool is_link(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_symlink(path, ignored);
}

struct Opened {
  int descriptor;
  bool is_new;
};

/// Replaces a file or a link by a new file: no existing file is truncated, and no link is followed.
Opened create_new(const std::filesystem::path& path) {
  struct stat about {};
  const bool exists = lstat(path.c_str(), &about) == 0;
  if (exists && !S_ISREG(about.st_mode) && !S_ISLNK(about.st_mode)) {
    return {open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC), false};
  }
  if (exists && unlink(path.c_str()) != 0) return {-1, false};
  return {open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666), true};
}

}  // namespace

OutputFile::OutputFile(std::filesystem::path path) : path_(std::move(path)) {
  announce("create", path_);
  const auto opened = create_new(path_);
  descriptor_ = opened.descriptor;
  is_new_ = opened.is_new;
  if (descriptor_ < 0) fail("create", path_, errno);
}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  if (is_new_) unlink(path_.c_str());
}

void OutputFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    announce("write", path_);
    const auto count = pwrite(descriptor_, bytes.data(), std::min(bytes.size(), kChunk), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("write", path_, count < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
    size_ = std::max(size_, offset);
  }
}

void OutputFile::finish() {
  announce("sync", path_);
  // EINVAL: a device or a pipe, which cannot be synced.
  if (fsync(descriptor_) != 0 && errno != EINVAL) fail("sync", path_, errno);
  // Some network file systems report a full disk only here.
  if (close(std::exchange(descriptor_, -1)) == 0) return;
  const int error = errno;
  if (is_new_) unlink(path_.c_str());
  fail("close", path_, error);
}

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail("read", path_, errno);
  struct stat about {};
  const int error = fstat(descriptor_, &about) != 0 ? errno : S_ISDIR(about.st_mode) ? EISDIR : 0;
  if (error == 0 && S_ISREG(about.st_mode)) {
    size_ = static_cast<uint64_t>(about.st_size);
    return;
  }
  close(descriptor_);
  if (error != 0) fail("read", path_, error);
  throw DataError(quote(path_.string()) + " is a device or a pipe, wanted a file");
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void InputFile::read_at(uint64_t offset, std::span<std::byte> bytes) const {
  const uint64_t wanted = offset + bytes.size();
  while (!bytes.empty()) {
    announce("read", path_);
    const auto count = pread(descriptor_, bytes.data(), std::min(bytes.size(), kChunk), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("read", path_, errno);
    if (count == 0) {
      throw DataError(quote(path_.string()) + " ends at byte " + std::to_string(offset) + ", wanted " +
                          std::to_string(wanted) + " bytes",
                      "it was cut short, use another copy");
    }
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
}

std::filesystem::path part_of(const std::filesystem::path& path, std::string_view suffix) {
  constexpr size_t kLongestName = 255;  // of Linux's file systems
  const auto name = path.filename().native();
  return path.parent_path() / (name.substr(0, kLongestName - suffix.size()) + std::string(suffix));
}

bool is_there(const std::filesystem::path& path) {
  struct stat about {};
  if (stat(path.c_str(), &about) == 0) return true;
  if (errno != ENOENT && errno != ENOTDIR) fail("read", path, errno);
  return false;
}

std::string read_text_file(const std::filesystem::path& path, uint64_t limit) {
  const InputFile file(path);
  if (file.size() > limit) {
    throw DataError(quote(path.string()) + " has " + std::to_string(file.size()) + " bytes, wanted at most " +
                    std::to_string(limit));
  }
  std::string text(file.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_file(const std::filesystem::path& path, std::span<const std::span<const std::byte>> parts,
                std::string_view suffix) {
  std::error_code ignored;
  const auto status = std::filesystem::symlink_status(path, ignored);
  const bool is_file = !exists(status) || is_regular_file(status) || is_symlink(status);
  const auto part = is_file ? part_of(path, suffix) : path;
  OutputFile file(part);
  for (const auto bytes : parts) file.append(bytes);
  file.finish();
  if (!is_file) return;  // a device or a pipe
  try {
    rename_over(part, path);
  } catch (...) {
    unlink(part.c_str());
    throw;
  }
}

void write_text_file(const std::filesystem::path& path, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  write_file(path, {&bytes, 1});
}

int open_log(const std::filesystem::path& path, bool append) {
  announce("create", path);
  const int flags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | (append ? 0 : O_TRUNC);
  const int descriptor = open(path.c_str(), flags, 0666);
  if (descriptor >= 0) return descriptor;
  if (errno == ELOOP && is_link(path)) fail_for_link(path);
  fail("write", path, errno);
}

std::string append_whole(int descriptor, std::string_view record) {
  const auto before = lseek(descriptor, 0, SEEK_END);
  while (!record.empty()) {
    const auto count = write(descriptor, record.data(), record.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const std::string reason = std::strerror(count < 0 ? errno : ENOSPC);
      // A device or a pipe cannot be truncated: the torn record stays.
      return before < 0 || ftruncate(descriptor, before) != 0 ? reason + " (a torn record may remain)" : reason;
    }
    record.remove_prefix(static_cast<size_t>(count));
  }
  return "";
}

void make_folders(const std::filesystem::path& folder) {
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) return;
  const auto parent = folder.parent_path();
  if (!parent.empty()) make_folders(parent);
  announce("make", folder);
  std::filesystem::create_directory(folder, error);
  if (error) fail("make folder", folder, error.value());
  sync_folder(parent.empty() ? "." : parent);
}

void make_own_folder(const std::filesystem::path& folder) {
  refuse_link(folder);
  make_folders(folder);
}

void refuse_link(const std::filesystem::path& path) {
  if (is_link(path)) fail_for_link(path);
}

bool is_in_place(int descriptor, const std::filesystem::path& path) {
  struct stat own {
  }, there{};
  if (fstat(descriptor, &own) != 0) return true;
  if (stat(path.c_str(), &there) != 0) return errno != ENOENT && errno != ENOTDIR;
  return own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

void remove_tree(const std::filesystem::path& path) {
  announce("remove", path);
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) fail("remove", path, error.value());
}

void sync_folder(const std::filesystem::path& folder) {
  announce("sync", folder);
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail("sync", folder, errno);
  // EINVAL: a file system that cannot sync folders.
  const int error = fsync(descriptor) != 0 && errno != EINVAL ? errno : 0;
  close(descriptor);
  if (error != 0) fail("sync", folder, error);
}

void rename_over(const std::filesystem::path& from, const std::filesystem::path& to) {
  announce("rename", to);
  if (rename(from.c_str(), to.c_str()) != 0) fail("rename", from, errno);
}

void rename_or_swap(const std::filesystem::path& from, const std::filesystem::path& to) {
  announce("rename", to);
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno == EINVAL || errno == ENOSYS) {  // no exchange (NFS): for a moment nothing is called `to`
    auto aside = from;
    aside += ".old";
    if (rename(to.c_str(), aside.c_str()) != 0 && errno != ENOENT) fail("rename", to, errno);
  } else if (errno != ENOENT) {
    fail("rename", to, errno);
  }
  if (rename(from.c_str(), to.c_str()) != 0) fail("rename", from, errno);
}

void set_file_hook(FileHook new_hook) { hook = std::move(new_hook); }

}  // namespace tandem::storage
