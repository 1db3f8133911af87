#include "tandem/base/ownership.h"

#include <atomic>

namespace tandem {
namespace {

std::atomic<void (*)(const Tensor&)> adopt_action{nullptr};

}  // namespace

void adopt(const Tensor& tensor) {
  if (auto* action = adopt_action.load()) action(tensor);
}

void set_adopt(void (*action)(const Tensor& tensor)) { adopt_action = action; }

}  // namespace tandem
