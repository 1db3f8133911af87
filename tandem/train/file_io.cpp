#include "tandem/train/file_io.h"

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

namespace tandem::train {
namespace {

constexpr size_t kChunk = 4 << 20;  // a piece that a hook can stop at, and that one system call takes

FileHook hook;

void announce(std::string_view operation, const std::filesystem::path& path) {
  if (hook) hook(operation, path);
}

[[noreturn]] void fail(std::string_view verb, const std::filesystem::path& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  throw IoError("cannot " + std::string(verb) + " " + quote(path.string()) + ": " + std::strerror(error),
                full ? "free some space there or choose another folder" : "");
}

}  // namespace

OutputFile::OutputFile(std::filesystem::path path) : path_(std::move(path)) {
  announce("create", path_);
  descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("create", path_, errno);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) close(descriptor_);
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
  if (fsync(descriptor_) != 0) fail("sync", path_, errno);
  // Some network file systems report a full disk only here.
  if (close(std::exchange(descriptor_, -1)) != 0) fail("close", path_, errno);
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

void write_text_file(const std::filesystem::path& path, std::string_view text) {
  OutputFile file(path);
  file.append(std::as_bytes(std::span(text)));
  file.finish();
}

std::string append_whole(int descriptor, std::string_view record) {
  const auto before = lseek(descriptor, 0, SEEK_END);
  while (!record.empty()) {
    const auto count = write(descriptor, record.data(), record.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const std::string reason = std::strerror(count < 0 ? errno : ENOSPC);
      // A device or a pipe cannot be cut; then the torn record stays.
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
  // EINVAL: a file system that has no such notion.
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
  if (errno == EINVAL || errno == ENOSYS) {  // no exchange here (NFS): the old one is away for a moment
    auto aside = from;
    aside += ".old";
    if (rename(to.c_str(), aside.c_str()) != 0 && errno != ENOENT) fail("rename", to, errno);
  } else if (errno != ENOENT) {
    fail("rename", to, errno);
  }
  if (rename(from.c_str(), to.c_str()) != 0) fail("rename", from, errno);
}

void set_file_hook(FileHook new_hook) { hook = std::move(new_hook); }

}  // namespace tandem::train
