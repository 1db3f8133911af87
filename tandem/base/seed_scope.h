#pragma once
#include <cstdint>
#include <mutex>

#include "tandem/base/tensor.h"

namespace tandem {

/// While it lives, torch's default CPU generator begins at `seed` and belongs to this thread: another thread's
/// SeedScope waits until this one ends. At the end the generator is where it was before. torch::nn's modules draw their
/// weights from that generator, of which a process has one: thread-ranks that build a module inside a scope of the same
/// seed get the same bits, on each run. Draws of other threads outside of any scope are not held back. Scopes do not
/// nest.
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
