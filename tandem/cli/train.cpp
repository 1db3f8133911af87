#include "tandem/cli/train.h"

#include <atomic>

#include "tandem/base/log.h"
#include "tandem/cli/run/folder.h"
#include "tandem/cli/run/resume.h"
#include "tandem/cli/run/training.h"
#include "tandem/cli/stop_signals.h"
#include "tandem/job/feature_scores.h"
#include "tandem/job/ranks.h"
#include "tandem/job/starting_weights.h"
#include "tandem/job/trained_model.h"
#include "tandem/memory/meter.h"

namespace tandem::cli {
namespace {

/// With resume=PATH, the settings of that run (unless --config names a file), then the words. `prepare`: what a
/// subcommand chooses or refuses.
job::Job training_job(const Arguments& arguments, void (*prepare)(settings::Settings& settings)) {
  auto settings = read_settings(arguments);
  const auto& source = settings.get_string("resume");
  const bool is_path = source != "none" && source != "auto" && !arguments.flag("--config");
  auto run = is_path ? job::saved_settings(source) : std::nullopt;
  if (!run) {
    prepare(settings);
    return job::read_job(std::move(settings));
  }
  run->apply(arguments.words);
  prepare(*run);
  auto job = job::read_job(*std::move(run));
  if (!settings.given("data")) job::check_saved_folder(job);
  return job;
}

}  // namespace

int train_with(const Arguments& arguments, void (*prepare)(settings::Settings& settings)) {
  memory::install_meter();
  auto job = training_job(arguments, prepare);
  job::check_training(job);
  job::check_pairs(job);
  check_resume(job.run);
  const auto folder = folder_of(job.run);
  if (job.data.has_folder()) check_apart(folder, job.data.folder);
  if (job.run.resume == job::Resume::none) job::check_weights(job);
  check_run_folder(folder);
  if (!folder.empty()) check_folder(job.run, folder);
  if (job::prints_for_the_job()) {
    for (const auto& line : job::idle_settings(job)) log::warn(line);
  }
  const auto data = job::open_data(job);
  job::check_best(job, data);
  check_checkpoints(job, *data.train, job::prints_for_the_job());
  std::atomic<ExitCode> code{ExitCode::done};
  job::on_ranks(
      job, [&](comm::ProcessGroup& group) { code = run_training(arguments, job, data, group); },
      stop_signals::requested);
  return static_cast<int>(code.load());
}

int run_train(const Arguments& arguments) {
  return train_with(arguments, [](settings::Settings&) {});
}

}  // namespace tandem::cli
