#pragma once
#include <functional>
#include <vector>

#include "tandem/job/job.h"

namespace tandem::job::detail {

/// The images that a forward pass of training has at a time: of each rank's micro-batches or shards, of each replica.
std::vector<int64_t> images_at_once(const Job& job);

/// Calls `work`, which runs the model at these sizes. A model that refuses a single image, as batch normalisation of
/// one number a channel does, becomes a SettingsError of the settings that cut the batch.
void name_single_images(const Job& job, const std::function<void()>& work);

}  // namespace tandem::job::detail
