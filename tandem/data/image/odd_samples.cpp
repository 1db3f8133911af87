#include "tandem/data/image/odd_samples.h"

namespace tandem::data {

void OddSamples::add(int64_t index, const std::string& what) {
  const std::lock_guard lock(mutex_);
  indices_.insert(index);
  if (*indices_.begin() == index) example_ = what;
}

int64_t OddSamples::count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(indices_.size());
}

std::vector<int64_t> OddSamples::indices() const {
  const std::lock_guard lock(mutex_);
  return {indices_.begin(), indices_.end()};
}

std::string OddSamples::example() const {
  const std::lock_guard lock(mutex_);
  return example_;
}

}  // namespace tandem::data
