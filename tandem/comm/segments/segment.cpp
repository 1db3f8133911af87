#include "tandem/comm/segments/segment.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <system_error>
#include <utility>

namespace tandem::comm {
namespace {

int checked(long result, const std::string& what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return static_cast<int>(result);
}

/// The key stands behind the rest.
int64_t mapped(int64_t bytes) { return bytes + static_cast<int64_t>(sizeof(uint64_t)); }

}  // namespace

Segment::Segment(int descriptor, int64_t bytes) : descriptor_(descriptor), bytes_(bytes) {
  void* data = mmap(nullptr, static_cast<size_t>(mapped(bytes)), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    close_descriptor();
    throw std::system_error(error, std::generic_category(), "segment: mmap");
  }
  data_ = static_cast<std::byte*>(data);
}

Segment Segment::create(int64_t bytes) {
  const int descriptor = checked(memfd_create("tandem", MFD_CLOEXEC), "segment: memfd_create");
  if (ftruncate(descriptor, mapped(bytes)) != 0) {
    const int error = errno;
    close(descriptor);
    throw std::system_error(error, std::generic_category(), "segment: ftruncate");
  }
  Segment segment(descriptor, bytes);
  std::random_device draw;
  const uint64_t key = uint64_t{draw()} << 32 | draw();
  std::memcpy(segment.data_ + bytes, &key, sizeof key);
  return segment;
}

Segment Segment::attach(pid_t process, int descriptor, int64_t bytes, uint64_t key) {
  const auto path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
  const int own = checked(open(path.c_str(), O_RDWR | O_CLOEXEC), "segment: " + path);
  struct stat status {};
  if (fstat(own, &status) != 0 || status.st_size != mapped(bytes)) {
    close(own);
    throw std::system_error(EINVAL, std::generic_category(), "segment: " + path);
  }
  Segment segment(own, bytes);
  if (segment.key() != key) throw std::system_error(EINVAL, std::generic_category(), "segment: " + path);
  return segment;
}

uint64_t Segment::key() const {
  uint64_t key = 0;
  std::memcpy(&key, data_ + bytes_, sizeof key);
  return key;
}

Segment::Segment(Segment&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(std::exchange(other.bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)) {}

Segment::~Segment() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(mapped(bytes_)));
  close_descriptor();
}

void Segment::close_descriptor() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

ProcessWatch::ProcessWatch(pid_t process)
    : descriptor_(checked(syscall(SYS_pidfd_open, process, 0), "process " + std::to_string(process))) {}

ProcessWatch::ProcessWatch(ProcessWatch&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

ProcessWatch::~ProcessWatch() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool ProcessWatch::has_ended() const {
  pollfd watched = {descriptor_, POLLIN, 0};
  return poll(&watched, 1, 0) == 1;
}

}  // namespace tandem::comm
