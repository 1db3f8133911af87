#include "tandem/comm/segments/segment.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace tandem::comm {
namespace {

int checked(long result, const std::string& what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return static_cast<int>(result);
}

}  // namespace

Segment::Segment(int descriptor, int64_t bytes) : descriptor_(descriptor), bytes_(bytes) {
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    close_descriptor();
    throw std::system_error(error, std::generic_category(), "segment: mmap");
  }
  data_ = static_cast<std::byte*>(data);
}

Segment Segment::create(int64_t bytes) {
  const int descriptor = checked(memfd_create("tandem", MFD_CLOEXEC), "segment: memfd_create");
  if (ftruncate(descriptor, bytes) != 0) {
    const int error = errno;
    close(descriptor);
    throw std::system_error(error, std::generic_category(), "segment: ftruncate");
  }
  return {descriptor, bytes};
}

Segment Segment::attach(pid_t process, int descriptor, int64_t bytes) {
  const auto path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
  const int own = checked(open(path.c_str(), O_RDWR | O_CLOEXEC), "segment: " + path);
  struct stat status {};
  if (fstat(own, &status) != 0 || status.st_size != bytes) {
    close(own);
    throw std::system_error(EINVAL, std::generic_category(), "segment: " + path);
  }
  return {own, bytes};
}

Segment::Segment(Segment&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(std::exchange(other.bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(bytes_, other.bytes_);
  std::swap(data_, other.data_);
  return *this;
}

Segment::~Segment() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
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
