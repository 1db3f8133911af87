#pragma once
#include <cstdint>
#include <mutex>

#include "tandem/base/tensor.h"

namespace tandem {

/// While the object lives, torch's default CPU generator begins at `seed` and belongs to this thread: a SeedScope in
/// another thread waits until this one ends. The destructor restores the generator's state. torch::nn's modules draw
/// their weights from this generator, and a process has only one: thread-ranks that build a module inside scopes with
/// the same seed get the same bits, on each run. Threads that draw without a scope are not blocked. Scopes must not be
/// nested.
class SeedScope {
 public:
  explicit SeedScope(uint64_t seed);
  ~SeedScope();
  SeedScope(const SeedScope&) = delete;
  SeedScope& operator=(const SeedScope&) = delete;

 private:
  std::unique_lock<std::mutex> turn_;
  Tensor before_;
};

}  // namespace tandem
