#pragma once
#include <sys/resource.h>

#include <csignal>

namespace tandem::storage {

/// No file of this process may grow beyond `bytes` while it lives: plays a full disk without a disk.
class DiskLimit {
 public:
  explicit DiskLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~DiskLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  DiskLimit(const DiskLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

}  // namespace tandem::storage
