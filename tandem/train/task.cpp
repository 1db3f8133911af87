#include "tandem/train/task.h"

namespace tandem::train {

std::vector<Parameter> Task::weights() const {
  auto all = parameters();
  for (const auto& buffer : buffers()) all.push_back(Parameter::replicated(buffer.name, buffer.tensor));
  return all;
}

memory::Chain Task::chain(const data::Batch& batch, std::span<const int64_t> sizes) {
  return {{memory::make_block("", {}, [this, &batch, sizes](const Tensor&) { return loss(batch, sizes); })}};
}

}  // namespace tandem::train
