#pragma once
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "tandem/train/event_file.h"
#include "tandem/train/json_log.h"
#include "tandem/train/progress.h"
#include "tandem/train/trainer.h"

namespace tandem::cli {

/// Shows a run on the terminal and writes its curves: log.jsonl and TensorBoard's events in the run's folder.
class RunObserver : public train::Observer {
 public:
  using Curve = std::vector<std::pair<double, double>>;  // step, value

  /// `first_step`: where a resumed run goes on; 0 for a new one.
  RunObserver(const std::filesystem::path& folder, int64_t steps_per_epoch, int64_t steps, int64_t first_step);

  void on_step(int64_t step, int64_t epoch, double lr, std::optional<double> loss) override;
  void on_scores(int64_t step, const train::Scores& scores) override;
  void on_evaluation(int64_t done, int64_t total) override;
  void on_checkpoint(int64_t step, const std::filesystem::path& path) override;
  void on_skipped_step(int64_t step, const std::string& fault) override;

  void finish();

  const Curve& losses() const { return losses_; }
  const Curve& rates() const { return rates_; }
  const Curve& top1() const { return top1_; }

 private:
  void show_epoch(int64_t epoch, int64_t step);

  int64_t steps_per_epoch_, steps_, epoch_ = -1;
  train::JsonLog log_;
  train::EventFile events_;
  std::unique_ptr<train::Progress> progress_, evaluation_;
  train::ProgressValues values_;
  Curve losses_, rates_, top1_;
};

}  // namespace tandem::cli
