#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/data/dataset.h"

namespace tandem::job {

/// On rank 0 a line on the images of `sets` that any rank has read and found odd (Dataset::odd_samples()): how many,
/// and the first with what is wrong. Nothing when there are none, and on other ranks. Null sets are left out.
/// Collective.
std::optional<std::string> odd_images(const std::vector<const data::Dataset*>& sets, comm::ProcessGroup& group);

}  // namespace tandem::job
