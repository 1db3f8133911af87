#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/data/dataset.h"

namespace tandem::job {

/// Returns, on rank 0, a line about the images of `sets` that any rank has read and found odd (Dataset::odd_samples()):
/// how many there are, and what is wrong with the first. Returns nullopt if there are none, and on the other ranks.
/// Null sets are skipped. Collective.
std::optional<std::string> odd_images(const std::vector<const data::Dataset*>& sets, comm::ProcessGroup& group);

}  // namespace tandem::job
