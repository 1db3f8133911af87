#pragma once
#include <filesystem>

#include "tandem/job/job.h"
#include "tandem/train/trainer.h"

namespace tandem::cli {

/// Resumes `trainer` from the checkpoint that the job names, if it names one. `own`: the checkpoints in the run's
/// folder. `leads`: whether this is rank 0, which logs. Returns the path of the resumed run's log; empty with
/// resume=none. Throws SettingsError or DataError. Collective.
std::filesystem::path resume(const job::Job& job, train::Trainer& trainer, const std::filesystem::path& folder,
                             const train::CheckpointStore& own, bool leads);

/// True on all ranks if resume() will read no checkpoint: the run begins at step 0. Collective.
bool begins_anew(const job::Run& run, const train::CheckpointStore& own, comm::ProcessGroup& group);

/// Throws SettingsError or DataError if there is nothing that this run could resume from. Reads folders only.
void check_resume(const job::Run& run);

/// Throws SettingsError if a new run would share its folder with checkpoints of an older run: a later run might resume
/// from the wrong ones.
void check_folder_is_new(const job::Job& job, const std::filesystem::path& folder);

}  // namespace tandem::cli
