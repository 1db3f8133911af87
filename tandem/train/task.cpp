#include "tandem/train/task.h"

namespace tandem::train {

std::vector<Parameter> Task::weights() const {
  auto all = parameters();
  for (const auto& buffer : buffers()) all.push_back(Parameter::replicated(buffer.name, buffer.tensor));
  return all;
}

}  // namespace tandem::train
