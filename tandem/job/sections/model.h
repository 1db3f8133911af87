#pragma once
#include <cstdint>
#include <string>

namespace tandem::job {

/// The backbone.
struct Model {
  std::string name;
  bool is_identity = false;  // the head sees the images' own numbers
  int64_t embedding = 0;
};

}  // namespace tandem::job
