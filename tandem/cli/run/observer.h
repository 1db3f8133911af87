#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "tandem/cli/run/folder.h"
#include "tandem/cli/run/history.h"
#include "tandem/cli/run/loss_check.h"
#include "tandem/report/progress.h"
#include "tandem/storage/event_file.h"
#include "tandem/storage/fields.h"
#include "tandem/storage/json_log.h"
#include "tandem/train/trainer.h"

namespace tandem::cli {

struct RunObserverOptions {
  std::filesystem::path folder;  // the run's, which is there
  int64_t steps_per_epoch = 1, steps = 0;
  int64_t first_step = 0;             // where a resumed run goes on; 0 for a new one
  std::filesystem::path earlier_log;  // of the run whose checkpoint is gone on from
  std::string settings;               // what settings.toml holds
  ChanceLevel chance = {};
  FolderLock* lock = nullptr;  // of the folder; null: nobody else comes there
};

/// Shows a run on the terminal and writes its curves: log.jsonl and TensorBoard's events in the run's folder.
///
/// A resumed run's curves begin with those of the log that it goes on from; a log in a new folder begins with that
/// log's lines. Files of the run that somebody removes meanwhile are put back when the next record is written, with one
/// warning, unless another run has taken the folder since. A run whose loss does not fall is told once.
class RunObserver : public train::Observer {
 public:
  explicit RunObserver(RunObserverOptions options);

  void on_step(int64_t step, int64_t epoch, double lr, std::optional<double> loss) override;
  void on_scores(int64_t step, const train::Scores& scores) override;
  void on_evaluation(int64_t done, int64_t total) override;
  void on_checkpoint(int64_t step, const std::filesystem::path& path) override;
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
  std::unique_ptr<report::Progress> progress_, evaluation_;
  std::string loss_;  // the newest, as the bar shows it
  RunCurves curves_;
  bool told_removal_ = false, told_loss_ = false, has_scores_ = false;
};

}  // namespace tandem::cli
