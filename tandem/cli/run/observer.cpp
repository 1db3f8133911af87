#include "tandem/cli/run/observer.h"

#include <chrono>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/cli/run/scores.h"
#include "tandem/storage/file_io.h"
#include "tandem/storage/log_file.h"

namespace tandem::cli {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

RunObserver::RunObserver(RunObserverOptions options)
    : options_(std::move(options)),
      log_(options_.folder / "log.jsonl", options_.first_step > 0),
      events_(options_.folder / "events"),
      time_left_({.steps = options_.steps,
                  .first = options_.first_step,
                  .test_every = options_.test_every,
                  .has_tests = options_.has_tests}) {
  if (options_.first_step > 0) go_on();
}

void RunObserver::go_on() {
  auto history = read_history(options_.earlier_log, options_.first_step);
  curves_ = std::move(history.curves);
  std::error_code ignored;
  if (std::filesystem::file_size(log_.file().path(), ignored) == 0) {
    for (const auto& line : history.lines) log_.file().append(line + "\n");
  }
  write({{"event", std::string("resume")}, {"ts", now_seconds()}, {"step", options_.first_step}});
  events_.session_start(options_.first_step);
}

void RunObserver::write(const storage::Fields& record) {
  if (!files_are_in_place()) put_files_back();
  log_.write(record);
}

bool RunObserver::files_are_in_place() const {
  const bool is_locked = options_.lock == nullptr || options_.lock->is_in_place();
  return is_locked && log_.file().is_in_place() && events_.file().is_in_place();
}

void RunObserver::put_files_back() {
  std::string outcome = ": log, events and settings are put back";
  try {
    if (options_.lock != nullptr) options_.lock->keep();
    log_.file().put_back();
    events_.file().put_back();
    const auto settings = options_.folder / "settings.toml";
    std::error_code ignored;
    if (!std::filesystem::exists(settings, ignored)) storage::write_text_file(settings, options_.settings);
  } catch (const IoError& error) {
    outcome = " and cannot be put back: " + message_of(error);
  }
  if (!std::exchange(told_removal_, true))
    log::warn("run's files in '" + options_.folder.string() + "' were removed during training" + outcome);
  told_removal_ = !files_are_in_place();
}

void RunObserver::show_epoch(int64_t epoch, int64_t step) {
  if (epoch == epoch_) return;
  if (progress_) progress_->finish();
  epoch_ = epoch;
  const int64_t begin = epoch * options_.steps_per_epoch;
  progress_ = std::make_unique<report::Progress>(
      report::ProgressOptions{.title = "epoch " + std::to_string(epoch + 1),
                              .total = std::min(options_.steps_per_epoch, options_.steps - begin),
                              .first = step - 1 - begin,
                              .start = step_began_});
}

void RunObserver::on_step(int64_t step, int64_t epoch, double lr, std::optional<double> loss) {
  show_epoch(epoch, step);
  time_left_.step_ended(step);
  if (loss) {
    loss_ = short_number(*loss);
    write({{"event", std::string("step")}, {"ts", now_seconds()}, {"step", step}, {"loss", *loss}, {"lr", lr}});
    events_.scalar("train/loss", step, *loss);
    events_.scalar("train/lr", step, lr);
    curves_.losses.emplace_back(step, *loss);
    curves_.rates.emplace_back(step, lr);
  }
  report::ProgressValues values = {{"loss", loss_}, {"lr", short_number(lr)}};
  if (loss_.empty()) values.erase(values.begin());
  progress_->update(step - epoch * options_.steps_per_epoch, values, time_left_.text());
  step_began_ = report::progress_clock();
}

void RunObserver::on_evaluation(int64_t done, int64_t total) {
  time_left_.test_began();
  if (!evaluation_) {
    if (progress_) progress_->finish();
    evaluation_ =
        std::make_unique<report::Progress>(report::ProgressOptions{.title = "test", .total = total, .unit = "batch"});
  }
  evaluation_->update(done);
}

void RunObserver::on_scores(int64_t step, const train::Scores& scores) {
  time_left_.test_ended();
  if (evaluation_) evaluation_->finish();
  evaluation_.reset();
  log::info("step " + std::to_string(step) + ": " + fractions_text(scores));
  storage::Fields record = {{"event", std::string("test")}, {"ts", now_seconds()}, {"step", step}};
  for (const auto& score : scores.list) record.emplace_back(score.name, score.value);
  write(record);
  for (const auto& score : scores.list) events_.scalar("test/" + score.name, step, score.value);
  curves_.top1.emplace_back(step, scores.value("top1"));
  has_scores_ = true;
  check_loss(scores);
  step_began_ = report::progress_clock();
}

void RunObserver::check_loss(const std::optional<train::Scores>& scores) {
  if (told_loss_) return;
  const auto line = stuck_loss(curves_.losses, options_.chance, scores);
  if (!line.empty()) log::warn(line);
  told_loss_ = !line.empty();
}

void RunObserver::on_checkpoint(int64_t step, const std::filesystem::path& path) {
  write({{"event", std::string("checkpoint")}, {"ts", now_seconds()}, {"step", step}, {"path", path.string()}});
  step_began_ = report::progress_clock();
}

void RunObserver::on_best(const train::BestTest& best, const std::filesystem::path& path) {
  write({{"event", std::string("best")},
         {"ts", now_seconds()},
         {"step", best.step},
         {"metric", best.metric},
         {"value", best.value},
         {"path", path.string()}});
}

void RunObserver::on_skipped_step(int64_t step, const std::string& fault) {
  log::warn("step " + std::to_string(step) + " is left out: " + fault);
  write({{"event", std::string("skip")}, {"ts", now_seconds()}, {"step", step}, {"fault", fault}});
}

void RunObserver::finish() {
  if (progress_) progress_->finish();
  if (!has_scores_) check_loss(std::nullopt);
}

}  // namespace tandem::cli
