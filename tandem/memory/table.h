#pragma once
#include <span>
#include <string>

#include "tandem/base/category.h"
#include "tandem/memory/meter.h"

namespace tandem::memory {

/// One line per rank: bytes per category at its peak, and the peak.
std::string memory_table(std::span<const CategoryBytes> ranks);

/// One line per block: bytes per category that are live, and their sum; then all blocks.
std::string block_table(const Account& account);

}  // namespace tandem::memory
