#pragma once
#include <vector>

#include "tandem/job/job.h"
#include "tandem/memory/chain.h"

namespace tandem::job {

/// What a job's backbone consists of and needs. Bytes are those of one rank that has the whole batch.
struct ModelFacts {
  int64_t parameters = 0, buffers = 0;  // numbers
  int64_t auxiliary_dim = 0;            // features that an auxiliary classifier sees; 0: there is none
  std::vector<memory::Cost> blocks;
};

/// Builds the backbone of the job and measures its blocks on noise of train.batch images, without opening the data. The
/// memory meter must be installed. Throws SettingsError as make_backbone().
ModelFacts model_facts(const Job& job);

}  // namespace tandem::job
