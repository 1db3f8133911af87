#include "tandem/storage/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/storage/detail/descriptor.h"

namespace tandem::storage {
namespace {

[[noreturn]] void fail(const std::filesystem::path& file, const char* reason) {
  throw IoError("file '" + file.string() + "' cannot be read (" + reason + ")");
}

[[noreturn]] void fail(const std::filesystem::path& file, int error) { fail(file, std::strerror(error)); }

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // do not wait for the writer of a pipe
  if (fd < 0) fail(file, errno);
  const detail::Descriptor descriptor{fd};
  struct stat status {};
  if (::fstat(fd, &status) != 0) fail(file, errno);
  if (S_ISDIR(status.st_mode)) fail(file, EISDIR);
  if (!S_ISREG(status.st_mode)) fail(file, "it is a device or a pipe");
  if (status.st_size == 0) return;
  const auto size = static_cast<size_t>(status.st_size);
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (start == MAP_FAILED) fail(file, errno);
  bytes_ = {static_cast<const std::byte*>(start), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace tandem::storage
