#pragma once
#include <span>
#include <string>

#include "tandem/base/category.h"

namespace tandem::memory {

/// One line per rank: bytes per category at its peak, and the peak.
std::string memory_table(std::span<const CategoryBytes> ranks);

}  // namespace tandem::memory
