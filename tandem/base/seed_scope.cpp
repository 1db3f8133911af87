#include "tandem/base/seed_scope.h"

#include <ATen/CPUGeneratorImpl.h>

namespace tandem {
namespace {

std::mutex& turns() {
  static std::mutex mutex;
  return mutex;
}

at::Generator generator() { return at::detail::getDefaultCPUGenerator(); }

}  // namespace

SeedScope::SeedScope(uint64_t seed) : turn_(turns()) {
  auto own = generator();
  const std::lock_guard lock(own.mutex());
  before_ = own.get_state();
  own.set_current_seed(seed);
}

SeedScope::~SeedScope() {
  auto own = generator();
  const std::lock_guard lock(own.mutex());
  own.set_state(before_);
}

}  // namespace tandem
