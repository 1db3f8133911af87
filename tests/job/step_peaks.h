#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tandem/comm/world.h"
#include "tests/data/patterns.h"

namespace tandem::job {

/// The peak of training on a rank.
struct Peaks {
  int64_t predicted = 0, measured = 0;
};

/// Of each rank of a job of four steps.
std::vector<Peaks> peaks_of(std::vector<std::string> words, const data::Dataset& patterns = test::Patterns(),
                            comm::WorldOptions world = {});

}  // namespace tandem::job
