#include "tandem/cli/run/resume.h"

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/log.h"
#include "tandem/cli/run/scores.h"
#include "tandem/comm/agree.h"
#include "tandem/train/checkpoint_store.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCheckpoints = "checkpoints";

/// The place is one checkpoint, and not the newest of its folder.
bool has_newer(const train::CheckpointPlace& place) {
  const auto steps = train::CheckpointStore(place.folder).list();
  return place.newest && !steps.empty() && steps.front() > *place.newest;
}

void tell_resumed(int64_t step) { log::info("resume   goes on after step " + format_count(step)); }

[[noreturn]] void refuse_own(const fs::path& folder) {
  throw SettingsError("out is '" + folder.string() + "', which holds checkpoints, but no whole one of this job",
                      "name another folder, or give the job's own settings");
}

[[noreturn]] void refuse_path(const std::string& path) {
  throw DataError("resume is '" + path + "', which holds no whole checkpoint of this job",
                  "see the warnings above; model.weights=CHECKPOINT starts another job from its weights, and "
                  "resume=none begins anew");
}

void resume_newest(train::Trainer& trainer, const fs::path& folder, const train::CheckpointStore& own, bool leads) {
  if (trainer.resume(own, std::nullopt)) {
    if (leads) tell_resumed(trainer.step());
    return;
  }
  if (!own.list().empty()) refuse_own(folder);
  if (leads) log::info("resume   no checkpoint of this job in '" + folder.string() + "': begins at step 0");
}

void resume_from(const std::string& path, const train::CheckpointPlace& place, const train::CheckpointStore& store,
                 train::Trainer& trainer, bool leads) {
  if (!trainer.resume(store, place.newest)) refuse_path(path);
  if (leads) tell_resumed(trainer.step());
}

}  // namespace

std::string folder_of(const job::Run& run) {
  if (!run.out.empty() || run.resume != job::Resume::from_path) return run.out;
  const auto place = train::locate_checkpoints(run.resume_path);
  if (place.folder.filename() != kCheckpoints || has_newer(place)) return "";
  const auto folder = place.folder.parent_path();
  const bool is_absolute = fs::path(run.resume_path).is_absolute();
  return (is_absolute ? folder : folder.lexically_proximate(fs::current_path())).string();
}

void tell_new_folder(const job::Run& run, const fs::path& folder) {
  if (run.resume != job::Resume::from_path || !run.out.empty() || is_of_run(run.resume_path, folder)) return;
  const bool is_older = has_newer(train::locate_checkpoints(run.resume_path));
  log::info("resume   writes to the new folder '" + folder.string() + "'" +
            (is_older ? ", for there are newer checkpoints beside '" + run.resume_path + "'" : ""));
}

bool is_of_run(const fs::path& path, const fs::path& folder) {
  std::error_code ignored;
  return fs::equivalent(train::locate_checkpoints(path).folder, folder / kCheckpoints, ignored);
}

fs::path resume(const job::Job& job, train::Trainer& trainer, const fs::path& folder, const train::CheckpointStore& own,
                bool leads) {
  constexpr const char* kLog = "log.jsonl";
  switch (job.run.resume) {
    case job::Resume::none:
      return {};
    case job::Resume::newest:
      resume_newest(trainer, folder, own, leads);
      return folder / kLog;
    case job::Resume::from_path:
      const auto place = train::locate_checkpoints(job.run.resume_path);
      const bool is_own = is_of_run(job.run.resume_path, folder);
      resume_from(job.run.resume_path, place, is_own ? own : train::CheckpointStore(place.folder), trainer, leads);
      return place.folder.parent_path() / kLog;
  }
  return {};
}

bool begins_anew(const job::Run& run, const train::CheckpointStore& own, comm::ProcessGroup& group) {
  const bool finds_none = run.resume == job::Resume::none || (run.resume == job::Resume::newest && own.list().empty());
  return comm::broadcast_number(finds_none ? 1 : 0, 0, group) == 1;
}

void check_resume(const job::Run& run) {
  if (run.resume == job::Resume::newest && run.out.empty()) {
    throw SettingsError("resume is auto and out is empty, wanted the run's folder in out",
                        "add out=FOLDER, or give the folder itself as resume=FOLDER");
  }
  if (run.resume != job::Resume::from_path) return;
  if (train::CheckpointStore(train::locate_checkpoints(run.resume_path).folder).list().empty())
    throw DataError("resume is '" + run.resume_path + "', which holds no checkpoint", "resume=none begins anew");
}

void check_checkpoints(const job::Job& job, const data::Dataset& dataset, bool tells) {
  if (job.run.resume == job::Resume::none) return;
  const bool is_path = job.run.resume == job::Resume::from_path;
  const auto place = is_path ? train::locate_checkpoints(job.run.resume_path)
                             : train::CheckpointPlace{fs::path(job.run.out) / kCheckpoints, {}};
  const train::CheckpointStore store(place.folder);
  if (!is_path && store.list().empty()) return;
  std::vector<std::string> notes;
  const auto trusts = [](const train::CheckpointStore::Found&) { return std::optional<std::string>(); };
  if (store.find_newest(shared_identity(job, identity(job, dataset)), notes, place.newest, trusts)) return;
  for (const auto& note : notes) {
    if (tells) log::warn(note);
  }
  if (is_path) refuse_path(job.run.resume_path);
  refuse_own(job.run.out);
}

void check_folder(const job::Run& run, const fs::path& folder) {
  if (run.resume == job::Resume::newest || train::CheckpointStore(folder / kCheckpoints).list().empty()) return;
  const auto out = "out is '" + folder.string() + "', which holds ";
  if (run.resume == job::Resume::from_path) {
    const bool is_own = is_of_run(run.resume_path, folder);
    if (is_own && !has_newer(train::locate_checkpoints(run.resume_path))) return;
    if (is_own) {
      throw SettingsError(out + "newer checkpoints than '" + run.resume_path + "', wanted a new folder",
                          "name another folder with out=, or leave it out for a new one");
    }
  }
  throw SettingsError(out + "checkpoints of a run, wanted a new folder",
                      "add resume=auto to go on with that run, or name another folder");
}

std::string rate_jump(const job::Job& job, const train::Trainer& trainer, const train::TrainerOptions& options) {
  constexpr double kNoJump = 0.01;
  const auto before = trainer.rate_before();
  if (!before || trainer.step() >= options.steps) return "";
  const auto same_step = train::learning_rate(options.schedule, trainer.step() - 1);
  if (std::abs(same_step - *before) <= kNoJump * std::max(same_step, *before)) return "";
  const auto from = short_number(*before);
  const auto to = short_number(train::learning_rate(options.schedule, trainer.step()));
  if (from == to) return "";
  const bool is_scaled = job.settings.get_int("train.base_batch") > 0;
  return "the learning rate jumps from " + from + " to " + to +
         ", because train.steps, train.epochs or the schedule have changed: leave them as they were, or go on with "
         "train.schedule=constant train.lr=" +
         from + (is_scaled ? " train.base_batch=0" : "");
}

}  // namespace tandem::cli
