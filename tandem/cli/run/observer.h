#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "tandem/cli/run/folder.h"
#include "tandem/cli/run/history.h"
#include "tandem/cli/run/loss_check.h"
#include "tandem/report/progress.h"
#include "tandem/report/time_left.h"
#include "tandem/storage/event_file.h"
#include "tandem/storage/fields.h"
#include "tandem/storage/json_log.h"
#include "tandem/train/trainer.h"

namespace tandem::cli {

struct RunObserverOptions {
  std::filesystem::path folder;  // the run's folder, which must exist
  int64_t steps_per_epoch = 1, steps = 0;
  int64_t test_every = 0;  // steps; 0: at the end only
  bool has_tests = false;
  int64_t first_step = 0;             // step from which the run resumes; 0 for a new run
  std::filesystem::path earlier_log;  // log of the run that is resumed
  std::string settings;               // content of settings.toml
  ChanceLevel chance = {};
  FolderLock* lock = nullptr;  // of the folder; null: no other run uses it
};

/// Shows a run on the terminal and writes its curves: log.jsonl and TensorBoard's events in the run's folder.
///
/// The curves of a resumed run begin with the curves of the earlier log; a log in a new folder begins with the lines of
/// the earlier log. If files of the run are removed during training, they are restored when the next record is written,
/// with one warning, unless another run has taken the folder since. One warning is logged if the loss does not fall.
class RunObserver : public train::Observer {
 public:
  explicit RunObserver(RunObserverOptions options);

  void on_step(int64_t step, int64_t epoch, double lr, std::optional<double> loss) override;
  void on_scores(int64_t step, const train::Scores& scores) override;
  void on_evaluation(int64_t done, int64_t total) override;
  void on_checkpoint(int64_t step, const std::filesystem::path& path) override;
  void on_best(const train::BestTest& best, const std::filesystem::path& path) override;
  void on_skipped_step(int64_t step, const std::string& fault) override;

  void finish();

  const RunCurves& curves() const { return curves_; }

 private:
  void go_on();
  void show_epoch(int64_t epoch, int64_t step);
  void write(const storage::Fields& record);
  bool files_are_in_place() const;
  void put_files_back();
  void check_loss(const std::optional<train::Scores>& scores);

  RunObserverOptions options_;
  int64_t epoch_ = -1;
  storage::JsonLog log_;
  storage::EventFile events_;
  report::TimeLeft time_left_;
  std::unique_ptr<report::Progress> progress_, evaluation_;
  double step_began_ = report::progress_clock();  // the next step
  std::string loss_;                              // the last loss, as the progress bar shows it
  RunCurves curves_;
  bool told_removal_ = false, told_loss_ = false, has_scores_ = false;
};

}  // namespace tandem::cli
