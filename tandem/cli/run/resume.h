#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "tandem/job/job.h"
#include "tandem/train/trainer.h"

namespace tandem::cli {

/// The folder that the run writes to: `out`; without it, with resume=PATH, the folder of the run that PATH leads to,
/// unless PATH is a checkpoint and that run has newer ones. "": a new folder.
std::string folder_of(const job::Run& run);

/// True if the path leads to the folder of this run, its checkpoints or one of them.
bool is_of_run(const std::filesystem::path& path, const std::filesystem::path& folder);

/// Tells that a run which resumes from a path has been given the new folder `folder`, and why.
void tell_new_folder(const job::Run& run, const std::filesystem::path& folder);

/// Resumes `trainer` from the checkpoint that the job names, if it names one. `own`: the checkpoints in the run's
/// folder. `leads`: whether this is rank 0, which logs. Returns the path of the resumed run's log; empty with
/// resume=none. Throws SettingsError or DataError. Collective.
std::filesystem::path resume(const job::Job& job, train::Trainer& trainer, const std::filesystem::path& folder,
                             const train::CheckpointStore& own, bool leads);

/// True on all ranks if resume() will read no checkpoint: the run begins at step 0. Collective.
bool begins_anew(const job::Run& run, const train::CheckpointStore& own, comm::ProcessGroup& group);

/// Throws SettingsError or DataError if there is nothing that this run could resume from. Reads folders only.
void check_resume(const job::Run& run);

/// Throws as resume() would if no checkpoint is of this job or has all its files. Reads no file of tensors. `tells`:
/// logs what is wrong with each.
void check_checkpoints(const job::Job& job, const data::Dataset& dataset, bool tells);

/// Throws SettingsError if the run would share its folder with checkpoints of another run, or with newer ones than that
/// from which it resumes: a later run might resume from the wrong ones.
void check_folder(const job::Run& run, const std::filesystem::path& folder);

/// A line that says how the learning rate jumps at a resume, because the schedule, or the number of steps over which it
/// stretches, is another one than before; "" if it does not. `steps`: of the whole run.
std::string rate_jump(const job::Job& job, const train::Trainer& trainer, const train::TrainerOptions& options);

}  // namespace tandem::cli
