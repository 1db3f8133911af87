#pragma once
#include <filesystem>

#include "tandem/job/job.h"
#include "tandem/train/trainer.h"

namespace tandem::cli {

/// Goes on from the checkpoint that the job names, or from none. `own`: that of the run's folder. Returns the log of
/// the run that is gone on with; empty for a run that begins. Throws SettingsError, DataError. Collective.
std::filesystem::path resume(const job::Job& job, train::Trainer& trainer, const std::filesystem::path& folder,
                             const train::CheckpointStore& own, bool leads);

/// Throws SettingsError when a run that begins anew would lie beside an older one's checkpoints, from which a later
/// one would go on.
void check_folder_is_new(const job::Job& job, const std::filesystem::path& folder);

}  // namespace tandem::cli
