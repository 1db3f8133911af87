#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::job {

/// The evaluation.
struct Evaluation {
  int64_t every = 0;               // epochs; 0: at the end only
  int64_t batch = 0;               // images, over all ranks
  std::vector<std::string> pairs;  // files of pairs of images
  bool verifies = false;           // compares all test images with each other
  bool identifies = false;         // searches each in a gallery of one image a class
};

}  // namespace tandem::job
