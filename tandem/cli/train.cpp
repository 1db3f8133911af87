#include <ATen/ATen.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/log.h"
#include "tandem/cli/command.h"
#include "tandem/cli/epoch_hints.h"
#include "tandem/cli/head_settings.h"
#include "tandem/cli/idle_settings.h"
#include "tandem/cli/job.h"
#include "tandem/cli/memory_plan.h"
#include "tandem/cli/memory_probe.h"
#include "tandem/cli/odd_images.h"
#include "tandem/cli/result.h"
#include "tandem/cli/retrieval_scores.h"
#include "tandem/cli/run_facts.h"
#include "tandem/cli/run_folder.h"
#include "tandem/cli/run_observer.h"
#include "tandem/cli/run_report.h"
#include "tandem/cli/stop_signals.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"
#include "tandem/memory/meter.h"
#include "tandem/train/weights_hash.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

ChanceLevel chance_level(const settings::Settings& settings, int64_t classes) {
  return {classes, settings.get_string("head") == "softmax" && !read_sampling(settings)};
}

/// One training run on one rank; rank 0 also tells.
class TrainRun {
 public:
  TrainRun(const Arguments& arguments, const settings::Settings& settings, const data::Split& data,
           comm::ProcessGroup& group)
      : arguments_(arguments), settings_(settings), data_(data), group_(group), leads_(group.rank() == 0) {}

  ExitCode operator()() {
    leave_if_asked();
    training_ = training_loader(settings_, *data_.train, group_);
    if (data_.test && data_.test->size() > 0) evaluation_ = evaluation_loader(settings_, *data_.test, group_);
    tell_plan();
    if (settings_.get_bool("report.compare")) probes_ = compare_forms(settings_, *data_.train, group_);
    folder_ = comm::broadcast_text(leads_ ? make_run_folder(settings_.get_string("out")).string() : "", 0, group_);
    if (leads_) lock_.emplace(folder_);
    check_folder_is_new();
    group_.recorder().set_folder(folder_ / kFlightFolder);
    if (leads_) write_run_file(folder_ / "settings.toml", settings_.to_toml());
    return train_and_report();
  }

 private:
  /// A second run beside an older one's checkpoints would continue from the wrong ones later.
  void check_folder_is_new() const {
    if (settings_.get_string("resume") != "none" || train::CheckpointStore(folder_ / "checkpoints").list().empty())
      return;
    throw SettingsError("out is '" + folder_.string() + "', which holds checkpoints of a run, wanted a new folder",
                        "add resume=auto to go on with that run, or name another folder");
  }

  /// Before the first step there is nothing to save. All ranks leave together, or none does.
  void leave_if_asked() {
    if (!comm::any_rank(stop_signals::requested(), group_)) return;
    throw Interrupted("stopped before the first step; there is nothing to save");
  }

  ExitCode train_and_report() {
    leave_if_asked();
    group_.meter().reset();
    memory::reset_peak(group_.rank());
    const int64_t classes = num_classes(settings_, *data_.train), per_epoch = training_->batches_per_epoch();
    const auto task = make_task(settings_, *data_.train, head_form(settings_), group_);
    const auto options = trainer_options(settings_, *data_.train, per_epoch);
    train::CheckpointStore store(folder_ / "checkpoints", static_cast<int>(settings_.get_int("checkpoint.keep")));
    if (lock_) store.set_guard([this] { lock_->keep(); });
    train::Trainer trainer(*task, *training_, evaluation_.get(), classes, options, &store, group_);
    resume(trainer, store);
    if (leads_) set_flight_aside(folder_);
    std::unique_ptr<RunObserver> observer;
    if (leads_) {
      observer = std::make_unique<RunObserver>(RunObserverOptions{.folder = folder_,
                                                                  .steps_per_epoch = per_epoch,
                                                                  .steps = options.steps,
                                                                  .first_step = trainer.step(),
                                                                  .earlier_log = earlier_log_,
                                                                  .settings = settings_.to_toml(),
                                                                  .chance = chance_level(settings_, classes),
                                                                  .lock = &*lock_});
    }
    train::Observer nobody;
    const auto outcome = trainer.run(observer ? *observer : nobody);
    if (observer) observer->finish();
    const auto facts = gather_facts(own_facts(*task, trainer), group_);
    weights_hash_ = train::weights_hash(task->weights(), group_);
    const bool retrieves = data_.retrieval || !settings_.get_list("eval.pairs").empty();
    if (retrieves && outcome.images > 0 && !outcome.stopped) {
      if (leads_) write_result_file(result_of(outcome, facts));  // should it fail
      score_unseen(*task);
    }
    tell_odd_images();
    if (leads_) tell_result(outcome, facts, *observer);
    if (!outcome.saved) {
      group_.recorder().set_folder({});  // every rank ends so, and the folder may be another run's
      const auto newest = store.newest(options.shared);
      throw IoError(
          "the state after step " + std::to_string(outcome.steps) + " is not saved",
          newest ? "the newest checkpoint is " + store.path(*newest).string() : "there is no checkpoint of this run");
    }
    return outcome.stopped ? ExitCode::preempted : ExitCode::done;
  }

  /// False, with a warning, when another run has taken the folder: nothing is written there then.
  bool write_result_file(const nlohmann::json& result) {
    try {
      lock_->keep();
    } catch (const IoError& error) {
      log::warn("result is not written: " + message_of(error));
      return false;
    }
    write_run_file(folder_ / "result.json", result.dump(2) + "\n");
    return true;
  }

  void score_unseen(train::Task& task) {
    if (data_.retrieval) retrieval_ = retrieval_scores(settings_, task, *data_.retrieval, group_);
    pairs_ = pair_scores(settings_, task, group_);
  }

  void tell_odd_images() const {
    const auto* query = data_.retrieval ? data_.retrieval->query.images.get() : nullptr;
    const auto* gallery = data_.retrieval ? data_.retrieval->gallery.images.get() : nullptr;
    if (const auto line = odd_images({data_.train.get(), data_.test.get(), query, gallery}, group_)) log::warn(*line);
  }

  void tell_plan() const {
    if (!leads_) return;
    log::info(data_.summary);
    if (data_.retrieval) log::info("retrieval " + data_.retrieval->what);
    const bool naive = head_form(settings_) == HeadForm::naive;
    const JobShape shape = {num_classes(settings_, *data_.train), data_.train->image_shape()};
    const auto counts = settings_.get_list("memory.limit").empty()
                            ? comm::split_sizes(shape.classes, group_.size())
                            : MemoryPlan(settings_, group_.size(), shape).counts();
    const auto shares = " " + counts_text(counts);
    log::info("plan     " + settings_.get_string("model") + " × " + std::to_string(group_.size()) +
              " (data parallel) · head split" + shares + (naive ? " · all scores on rank 0" : ""));
    for (const auto& line : epoch_hints(settings_, data_.train->size(), training_->batches_per_epoch()))
      log::warn(line);
  }

  void resume(train::Trainer& trainer, const train::CheckpointStore& own_store) {
    const auto& from = settings_.get_string("resume");
    if (from == "none") return;
    earlier_log_ = folder_ / "log.jsonl";
    if (from == "auto") {
      if (settings_.get_string("out").empty()) {
        throw SettingsError("resume is auto and out is empty, wanted the run's folder in out",
                            "add out=FOLDER, or give the folder itself as resume=FOLDER");
      }
      if (trainer.resume(own_store, std::nullopt)) return tell_resumed(trainer.step());
      if (!own_store.list().empty()) {
        throw SettingsError("out is '" + folder_.string() + "', which holds checkpoints, but no whole one of this job",
                            "name another folder, or give the job's own settings");
      }
      if (leads_) log::info("resume   no checkpoint of this job in '" + folder_.string() + "': begins at step 0");
      return;
    }
    const auto place = train::locate_checkpoints(from);
    const train::CheckpointStore store(place.folder);
    earlier_log_ = place.folder.parent_path() / "log.jsonl";
    if (store.list().empty()) {
      throw DataError("resume is '" + from + "', which holds no checkpoint", "resume=none begins anew");
    }
    if (!trainer.resume(store, place.newest)) {
      throw DataError("resume is '" + from + "', which holds no whole checkpoint of this job",
                      "see the warnings above; resume=none begins anew");
    }
    tell_resumed(trainer.step());
  }

  void tell_resumed(int64_t step) const {
    if (leads_) log::info("resume   goes on after step " + format_count(step));
  }

  RankFacts own_facts(const train::Task& task, const train::Trainer& trainer) const {
    RankFacts facts;
    facts.at_peak = memory::account(group_.rank()).at_peak;
    facts.head_bytes = head_bytes(task, trainer.optimizer());
    facts.wire = group_.meter().counts();
    return facts;
  }

  nlohmann::json result_of(const train::Outcome& outcome, const std::vector<RankFacts>& facts) const {
    const double rate = outcome.seconds > 0 ? static_cast<double>(outcome.images) / outcome.seconds : 0;
    auto losses = nlohmann::json::array();
    for (const auto& loss : outcome.first_losses) losses.push_back(loss ? nlohmann::json(*loss) : nlohmann::json());
    nlohmann::json result = {{"top1", outcome.scores.top1},
                             {"top5", outcome.scores.top5},
                             {"loss", outcome.loss},
                             {"losses", losses},
                             {"test_loss", outcome.scores.loss},
                             {"test_step", outcome.scored_step},
                             {"test_images", outcome.scores.samples},
                             {"images_per_second", rate},
                             {"seconds", outcome.seconds},
                             {"total_seconds", outcome.total_seconds},
                             {"step_seconds", outcome.step_seconds},
                             {"steps", outcome.steps},
                             {"skipped_steps", outcome.skipped_steps},
                             {"classes", num_classes(settings_, *data_.train)},
                             {"ranks", group_.size()},
                             {"memory", memory_json(facts)},
                             {"wire", wire_json(facts)},
                             {"checkpoint", outcome.checkpoint.string()},
                             {"weights_hash", weights_hash_},
                             {"run", folder_.string()},
                             {"retrieval", retrieval_},
                             {"pairs", pairs_},
                             {"stopped", outcome.stopped}};
    for (const auto& probe : probes_) {
      auto& form = result["memory"]["forms"][std::string(name_of(probe.form))] = memory_json(probe.ranks);
      for (size_t rank = 0; rank < probe.predicted.size(); ++rank)
        form["ranks"][rank]["predicted_bytes"] = probe.predicted[rank];
    }
    return result;
  }

  void tell_result(const train::Outcome& outcome, const std::vector<RankFacts>& facts, const RunObserver& observer) {
    auto result = result_of(outcome, facts);
    if (outcome.images == 0) {  // the run was complete: its files stay
      result["loss"] = result["images_per_second"] = nullptr;
      log::info("nothing was left to train");
      return write_result(arguments_, "", result);
    }
    fs::path report;
    if (write_result_file(result))
      report = write_run_report(folder_, settings_, result, probes_, facts, observer.curves());
    write_result(arguments_, result_text(outcome, result["images_per_second"], facts, report), result);
    if (outcome.stopped && outcome.saved)
      log::info("stopped  saved at step " + format_count(outcome.steps) + "; resume=" + folder_.string() + " goes on");
  }

  std::string result_text(const train::Outcome& outcome, double rate, const std::vector<RankFacts>& facts,
                          const fs::path& report) const {
    std::string text;
    if (outcome.scores.samples > 0) {
      text = "top-1 " + format_percent(outcome.scores.top1) + "  top-5 " + format_percent(outcome.scores.top5) +
             "  (held-out test set)      " + format_count(std::llround(rate)) + " images/s\n";
    }
    text += retrieval_text(retrieval_) + pairs_text(pairs_) + memory_text(facts) + wire_text(facts);
    if (!report.empty()) text += "report   " + report.string() + "\n";
    return text;
  }

  const Arguments& arguments_;
  const settings::Settings& settings_;
  const data::Split& data_;
  comm::ProcessGroup& group_;
  bool leads_;
  std::unique_ptr<data::Loader> training_, evaluation_;
  std::vector<FormMemory> probes_;
  nlohmann::json retrieval_, pairs_ = nlohmann::json::array();
  fs::path folder_, earlier_log_;
  std::string weights_hash_;
  std::optional<FolderLock> lock_;
};

}  // namespace

int run_train(const Arguments& arguments) {
  memory::install_meter();
  auto settings = read_settings(arguments);
  const int ranks = world_size(settings);
  check_job(settings, ranks);
  check_pairs(settings);
  settings.set("ranks", std::to_string(ranks));  // what is saved with the run is what ran
  if (prints_for_the_job()) {
    check_result_file(arguments);
    for (const auto& line : idle_settings(settings)) log::warn(line);
  }
  const auto data = open_data(settings);
  if (!settings.get_list("memory.limit").empty()) {  // told before anything is made
    MemoryPlan(settings, ranks, {num_classes(settings, *data.train), data.train->image_shape()}).counts();
  }
  std::atomic<ExitCode> code{ExitCode::done};
  stop_signals::begin();
  on_ranks(settings, [&](comm::ProcessGroup& group) { code = TrainRun(arguments, settings, data, group)(); });
  return static_cast<int>(code.load());
}

}  // namespace tandem::cli
