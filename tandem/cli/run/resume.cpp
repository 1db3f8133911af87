#include "tandem/cli/run/resume.h"

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/log.h"
#include "tandem/comm/agree.h"
#include "tandem/train/checkpoint_store.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

void tell_resumed(int64_t step) { log::info("resume   goes on after step " + format_count(step)); }

void resume_newest(train::Trainer& trainer, const fs::path& folder, const train::CheckpointStore& own, bool leads) {
  if (trainer.resume(own, std::nullopt)) {
    if (leads) tell_resumed(trainer.step());
    return;
  }
  if (!own.list().empty()) {
    throw SettingsError("out is '" + folder.string() + "', which holds checkpoints, but no whole one of this job",
                        "name another folder, or give the job's own settings");
  }
  if (leads) log::info("resume   no checkpoint of this job in '" + folder.string() + "': begins at step 0");
}

void resume_from(const std::string& path, const train::CheckpointPlace& place, train::Trainer& trainer, bool leads) {
  const train::CheckpointStore store(place.folder);
  if (!trainer.resume(store, place.newest)) {
    throw DataError("resume is '" + path + "', which holds no whole checkpoint of this job",
                    "see the warnings above; model.weights=CHECKPOINT starts another job from its weights, and "
                    "resume=none begins anew");
  }
  if (leads) tell_resumed(trainer.step());
}

}  // namespace

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
      resume_from(job.run.resume_path, place, trainer, leads);
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

void check_folder_is_new(const job::Job& job, const fs::path& folder) {
  if (job.run.resume != job::Resume::none || train::CheckpointStore(folder / "checkpoints").list().empty()) return;
  throw SettingsError("out is '" + folder.string() + "', which holds checkpoints of a run, wanted a new folder",
                      "add resume=auto to go on with that run, or name another folder");
}

}  // namespace tandem::cli
