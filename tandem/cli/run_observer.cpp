#include "tandem/cli/run_observer.h"

#include <chrono>
#include <cstdio>

#include "tandem/base/log.h"

namespace tandem::cli {
namespace {

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

std::string percent(double part) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %%", 100 * part);
  return text;
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

RunObserver::RunObserver(const std::filesystem::path& folder, int64_t steps_per_epoch, int64_t steps,
                         int64_t first_step)
    : steps_per_epoch_(steps_per_epoch),
      steps_(steps),
      log_(folder / "log.jsonl", first_step > 0),
      events_(folder / "events") {
  if (first_step > 0) events_.session_start(first_step);
}

void RunObserver::show_epoch(int64_t epoch, int64_t step) {
  if (epoch == epoch_) return;
  if (progress_) progress_->finish();
  epoch_ = epoch;
  const int64_t begin = epoch * steps_per_epoch_;
  progress_ =
      std::make_unique<train::Progress>(train::ProgressOptions{.title = "epoch " + std::to_string(epoch + 1),
                                                               .total = std::min(steps_per_epoch_, steps_ - begin),
                                                               .first = step - 1 - begin});
}

void RunObserver::on_step(int64_t step, int64_t epoch, double lr, std::optional<double> loss) {
  show_epoch(epoch, step);
  if (loss) {
    values_ = {{"loss", short_number(*loss)}, {"lr", short_number(lr)}};
    log_.write({{"event", std::string("step")}, {"ts", now_seconds()}, {"step", step}, {"loss", *loss}, {"lr", lr}});
    events_.scalar("train/loss", step, *loss);
    events_.scalar("train/lr", step, lr);
    losses_.emplace_back(step, *loss);
    rates_.emplace_back(step, lr);
  }
  progress_->update(step - epoch * steps_per_epoch_, values_);
}

void RunObserver::on_evaluation(int64_t done, int64_t total) {
  if (!evaluation_) {
    if (progress_) progress_->finish();
    evaluation_ =
        std::make_unique<train::Progress>(train::ProgressOptions{.title = "test", .total = total, .unit = "batch"});
  }
  evaluation_->update(done);
}

void RunObserver::on_scores(int64_t step, const train::Scores& scores) {
  if (evaluation_) evaluation_->finish();
  evaluation_.reset();
  log::info("step " + std::to_string(step) + ": top-1 " + percent(scores.top1) + "  top-5 " + percent(scores.top5));
  log_.write({{"event", std::string("test")},
              {"ts", now_seconds()},
              {"step", step},
              {"top1", scores.top1},
              {"top5", scores.top5},
              {"loss", scores.loss}});
  events_.scalar("test/top1", step, scores.top1);
  events_.scalar("test/top5", step, scores.top5);
  events_.scalar("test/loss", step, scores.loss);
  top1_.emplace_back(step, scores.top1);
}

void RunObserver::on_checkpoint(int64_t step, const std::filesystem::path& path) {
  log_.write({{"event", std::string("checkpoint")}, {"ts", now_seconds()}, {"step", step}, {"path", path.string()}});
}

void RunObserver::on_skipped_step(int64_t step, const std::string& fault) {
  log::warn("step " + std::to_string(step) + " is left out: " + fault);
  log_.write({{"event", std::string("skip")}, {"ts", now_seconds()}, {"step", step}, {"fault", fault}});
}

void RunObserver::finish() {
  if (progress_) progress_->finish();
}

}  // namespace tandem::cli
