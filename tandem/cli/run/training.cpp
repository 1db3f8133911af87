#include "tandem/cli/run/training.h"

#include <nlohmann/json.hpp>

#include "tandem/base/format.h"
#include "tandem/base/log.h"
#include "tandem/cli/result.h"
#include "tandem/cli/run/block_file.h"
#include "tandem/cli/run/folder.h"
#include "tandem/cli/run/memory_events.h"
#include "tandem/cli/run/observer.h"
#include "tandem/cli/run/report.h"
#include "tandem/cli/run/resume.h"
#include "tandem/cli/run/step_memory.h"
#include "tandem/cli/run/trained.h"
#include "tandem/cli/stop_signals.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/split.h"
#include "tandem/job/auto_plan.h"
#include "tandem/job/epoch_hints.h"
#include "tandem/job/image_answers.h"
#include "tandem/job/model_card.h"
#include "tandem/job/parts.h"
#include "tandem/job/pipeline_cut.h"
#include "tandem/job/rank_memory.h"
#include "tandem/job/ranks.h"
#include "tandem/job/size_hint.h"
#include "tandem/job/starting_weights.h"
#include "tandem/memory/device_memory.h"
#include "tandem/memory/meter.h"
#include "tandem/memory/table.h"
#include "tandem/report/slow_notice.h"
#include "tandem/train/weights_hash.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char *kResult = "result.json", *kSettings = "settings.toml";

/// ", data 2 x tensor 2" of ranks that stand along several axes, or along one of the model's, else "".
std::string mesh_suffix(const parallel::MeshSizes& mesh) {
  if (mesh.ranks() == mesh.data || mesh.ranks() == mesh.shard) return "";
  return ", " + job::mesh_text(mesh);
}

class TrainingRun {
 public:
  /// `predicted`: seconds of a step, of a plan that was searched for; 0: it was not.
  TrainingRun(const Arguments& arguments, const job::Job& job, const data::Split& data, comm::ProcessGroup& group,
              double predicted)
      : arguments_(arguments),
        job_(job),
        data_(data),
        group_(group),
        leads_(group.rank() == 0),
        shape_(shape_of(job, *data.train)) {
    trained_.predicted_step_seconds = predicted;
  }

  ExitCode operator()() {
    training_ = job::training_loader(job_, *data_.train, group_);
    if (data_.test && data_.test->size() > 0) {
      evaluation_ = job::evaluation_loader(job_, *data_.test, group_);
    }
    plan();
    tell_plan();
    if (job_.run.compares_forms) predict_other_forms();
    begin();
    enter_folder();
    try {
      return train();
    } catch (...) {
      if (leads_ && is_new_folder_ && !has_begun_) remove_new_folder(folder_, job_.run.out.empty());
      throw;
    }
  }

 private:
  /// Until here nothing is there to save, and a stop signal ends the process at once; from here it is a request. A
  /// signal that comes meanwhile may end a part of the processes.
  void begin() {
    stop_signals::begin();
    bool is_asked = true;
    try {
      is_asked = comm::any_rank(stop_signals::requested(), group_);
    } catch (const c10::DistError&) {
      if (!stop_signals::requested()) throw;
    }
    if (is_asked) throw Interrupted("stopped before the first step; there is nothing to save");
  }

  void plan() {
    const report::SlowNotice notice("memory   plans each block before the first step", leads_);
    plan_ = job::plan_rank(job_, shape_, {training_->batches_per_epoch(), data_.test ? data_.test->size() : 0}, group_);
  }

  void predict_other_forms() {
    const report::SlowNotice notice("memory   plans the other forms of the head; report.compare=false leaves them out",
                                    leads_);
    trained_.forms = job::predict_other_forms(job_, shape_, training_->batches_per_epoch(), group_);
  }

  void enter_folder() {
    std::error_code ignored;
    const auto folder = folder_of(job_.run);
    is_new_folder_ = !fs::exists(folder, ignored);
    folder_ = comm::broadcast_text(leads_ ? make_run_folder(folder).string() : "", 0, group_);
    if (leads_) lock_.emplace(folder_);
    if (leads_) tell_new_folder(job_.run, folder_);
    check_folder(job_.run, folder_);
    if (leads_ && job_.run.resume == job::Resume::none) write_settings();
  }

  void write_settings() { write_run_file(folder_ / kSettings, run_settings()); }

  /// A run that goes on in its own folder is one run: its settings do not name the folder as one to resume from.
  std::string run_settings() const {
    auto settings = job_.settings;
    if (job_.run.resume == job::Resume::from_path && is_of_run(job_.run.resume_path, folder_)) {
      settings.set("resume", "auto");
      settings.set("out", folder_.string());
    }
    return settings.to_toml();
  }

  ExitCode train() {
    group_.meter().reset();
    memory::reset_peak(group_.rank());
    memory::reset_device_peak(job_.parallel.device);
    auto options = job::trainer_options(job_, training_->batches_per_epoch());
    options.identity = identity(job_, *data_.train);
    options.shared_identity = shared_identity(job_, options.identity);
    options.stop_requested = stop_signals::requested;
    options.card = job::card_writer(job_, *data_.train);
    train::CheckpointStore store(folder_ / "checkpoints", static_cast<int>(job_.run.checkpoint_keep));
    if (lock_) store.set_guard([this] { lock_->keep(); });
    const auto parts = job::assemble(job_, shape_, plan_.task, group_, [&](const train::Task& task) {
      if (begins_anew(job_.run, store, group_)) job::start_from_weights(job_, task, group_);
    });
    std::unique_ptr<data::Loader> validation;
    if (data_.test) {
      validation = job::begin_search(job_, parts, *data_.test, training_->batches_per_epoch(), group_);
    }
    job::ImageAnswers answers(*parts.mesh, 1);
    options.answered = [&](const data::Batch& batch, const Ranking& best, std::span<const int64_t> sizes) {
      answers.add(batch, best, sizes);
    };
    train::Trainer trainer(*parts.step, *training_, evaluation_.get(), options, &store, group_);
    const auto earlier_log = resume(job_, trainer, folder_, store, leads_);
    if (leads_) take_over(trainer, options);
    if (leads_) set_flight_aside(folder_);
    const auto observer = leads_ ? make_observer(trainer, options, earlier_log) : nullptr;
    train::Observer nobody;
    std::optional<SearchFiles> search_files;
    if (observer && parts.search != nullptr) {
      search_files.emplace(folder_, *parts.search, job_.search->takes_best, trainer.step(), *observer, *lock_);
    }
    std::optional<memory::EventLog> events;
    if (job_.memory.event_steps > 0) events.emplace(group_.rank(), trainer.step() + job_.memory.event_steps);
    std::optional<BlockFileWriter> blocks;
    if (observer && parts.trace) {
      const BlockFileWriter::Start start = {folder_, earlier_log.parent_path(), trainer.step()};
      blocks.emplace(start, job_, parts.mesh->sizes().size(parallel::kBatchAxes));
      parts.trace->set_sink([&](const train::Trace& step) { blocks->write(step); });
    }
    has_begun_ = true;
    group_.recorder().set_folder(folder_ / kFlightFolder);
    trained_.outcome = run(trainer, search_files ? *search_files : observer ? *observer : nobody);
    if (events && all_own_folder()) {
      write_run_file(folder_ / memory_events_file(group_.rank()), memory_events_text(events->end()));
    }
    if (observer) observer->finish();
    collect(parts);
    if (leads_ && answers.count() > 0) {
      trained_.answers = answers_of(answers, *data_.test, ClassNames(*data_.train));
    }
    if (leads_) tell_result(observer->curves());
    check_saved(store, options.shared_identity);
    return trained_.outcome.stopped ? ExitCode::preempted : ExitCode::done;
  }

  /// Only now is it known that the folder is this job's.
  void take_over(const train::Trainer& trainer, const train::TrainerOptions& options) {
    if (job_.run.resume == job::Resume::none) return;
    const bool is_complete = trainer.step() >= options.steps && storage::is_there(folder_ / kSettings);
    if (!is_complete) write_settings();
    if (const auto line = rate_jump(job_, trainer, options); !line.empty()) log::info("resume   " + line);
  }

  /// Trains within memory.limit.
  train::Outcome run(train::Trainer& trainer, train::Observer& observer) {
    std::optional<memory::LimitScope> limit;
    if (const auto own = job::limit_of(job_, group_.rank())) limit.emplace(group_.rank(), *own);
    if (!job_.parallel.device.is_cpu()) memory::limit_device(job::limit_of_gpu(job_, group_.rank()));
    try {
      return trainer.run(observer);
    } catch (const c10::OutOfMemoryError&) {
      if (const auto held = limit ? limit->refused() : std::nullopt) {
        log::info("memory   what rank " + std::to_string(group_.rank()) + " held\n" + block_table(*held));
      }
      throw;
    }
  }

  std::unique_ptr<RunObserver> make_observer(const train::Trainer& trainer, const train::TrainerOptions& options,
                                             const fs::path& earlier_log) {
    const bool is_plain = classifier::is_plain_softmax(job_.head.options.scoring) && !job_.head.options.sampling;
    return std::make_unique<RunObserver>(RunObserverOptions{.folder = folder_,
                                                            .steps_per_epoch = training_->batches_per_epoch(),
                                                            .steps = options.steps,
                                                            .test_every = options.evaluate_every,
                                                            .has_tests = evaluation_ != nullptr,
                                                            .first_step = trainer.step(),
                                                            .earlier_log = earlier_log,
                                                            .settings = run_settings(),
                                                            .chance = {shape_.classes, is_plain},
                                                            .lock = &*lock_});
  }

  /// Collects the results of the run, on every rank.
  void collect(const job::Assembly& parts) {
    auto& step = *parts.step;
    job::RankFacts facts;
    facts.at_peak = memory::account(group_.rank()).at_peak;
    facts.device = memory::device_bytes(job_.parallel.device);
    set_training(facts, trained_.outcome.memory, plan_.own.step);
    facts.head_bytes = job::head_bytes(*parts.task, step);
    facts.wire = group_.meter().counts();
    trained_.ranks = job::gather_facts(facts, group_);
    trained_.classes = shape_.classes;
    trained_.tests = data_.tests;
    trained_.parallel = job_.parallel.strategy->name;
    trained_.mesh = parts.mesh->sizes();
    trained_.transport = group_.transport();
    trained_.replicas = job_.parallel.parts() / group_.size();
    trained_.timeline = gather_timeline(step.timeline(), group_);
    trained_.facts = over_ranks(step.facts(), group_);
    trained_.folder = folder_;
    trained_.weights_hash = train::weights_hash(step.weights(), group_);
    if (parts.search != nullptr) trained_.found = found_by(*parts.search);
    const auto& outcome = trained_.outcome;
    keeps_result_ = outcome.images == 0 && comm::any_rank(leads_ && fs::exists(folder_ / kResult), group_);
    const bool has_more = data_.retrieval || !job_.evaluation.pairs.empty();
    if (has_more && !keeps_result_ && !outcome.stopped) {
      if (leads_) write_result_file();  // in case the rest fails
      step.with_tested_weights([&] { trained_.features = score_features(job_, *parts.task, data_, *parts.mesh); });
    }
    tell_odd_images(data_, group_);
  }

  Found found_by(search::SearchStep& search) const {
    return {search.genotype(job_.search->takes_best), search.alphas_hash()};
  }

  /// Returns false, with a warning, if another run has taken the folder: then nothing is written there.
  bool owns_folder(const std::string& what) {
    try {
      lock_->keep();
      return true;
    } catch (const IoError& error) {
      log::warn(what + " not written: " + message_of(error));
      return false;
    }
  }

  bool all_own_folder() { return !comm::any_rank(leads_ && !owns_folder("memory's events are"), group_); }

  bool write_result_file() {
    if (!owns_folder("result is")) return false;
    write_run_file(folder_ / kResult, trained_json(trained_).dump(2) + "\n");
    return true;
  }

  void tell_plan() const {
    if (!leads_) return;
    log::info(data_.summary);
    if (data_.retrieval) log::info("retrieval " + data_.retrieval->what);
    const auto recomputed = plan_text(plan_.task.recompute);
    log::info("plan     " + job_.model.name + " × " + std::to_string(job_.parallel.parts()) + " (" +
              std::string(job_.parallel.strategy->title) + mesh_suffix(job_.parallel.mesh(group_.size())) + ") · " +
              std::string(job_.head.form->plan) +
              (job_.head.form->is_whole ? "" : " " + job::counts_text(with_copies(job_, plan_.task.counts))) +
              (recomputed.empty() ? "" : " · recompute " + recomputed));
    if (job_.parallel.pipeline > 1 && !job_.pipeline.cut.empty()) {
      std::string names;
      for (const auto& name : job_.pipeline.cut) names += (names.empty() ? "" : ", ") + name;
      log::info("stages   but the first begin with " + names);
    }
    if (job_.training.fixes_threads) {
      log::info("threads  1 a rank, with train.shards; another number gives other bits: threads=N");
    }
    for (const auto& line : job::epoch_hints(job_, data_.train->size(), training_->batches_per_epoch()))
      log::warn(line);
    if (const auto line = job::size_hint(job_, data_); !line.empty()) log::warn(line);
  }

  void tell_result(const RunCurves& curves) {
    const auto result = trained_json(trained_);
    if (trained_.outcome.images == 0) log::info("nothing was left to train");
    if (keeps_result_) return write_result(arguments_, "", result);
    fs::path report;
    if (write_result_file()) report = write_run_report(job_, trained_, curves, data_.test.get());
    write_result(arguments_, trained_text(trained_, report), result);
    const auto& outcome = trained_.outcome;
    if (outcome.stopped && outcome.saved)
      log::info("stopped  saved at step " + format_count(outcome.steps) + "; resume=" + folder_.string() + " goes on");
  }

  void check_saved(const train::CheckpointStore& store, const storage::Identity& shared) {
    if (trained_.outcome.saved) return;
    group_.recorder().set_folder({});  // all ranks fail now, and the folder may be another run's
    const auto newest = store.newest(shared);
    throw IoError(
        "the state after step " + std::to_string(trained_.outcome.steps) + " is not saved",
        newest ? "the newest checkpoint is " + store.path(*newest).string() : "there is no checkpoint of this run");
  }

  const Arguments& arguments_;
  const job::Job& job_;
  const data::Split& data_;
  comm::ProcessGroup& group_;
  bool leads_;
  job::DataShape shape_;
  std::unique_ptr<data::Loader> training_, evaluation_;
  job::RankPlan plan_;
  Trained trained_;
  bool keeps_result_ = false;  // the run was complete before
  fs::path folder_;
  bool is_new_folder_ = false, has_begun_ = false;
  std::optional<FolderLock> lock_;
};

}  // namespace

ExitCode run_training(const Arguments& arguments, const job::Job& job, const data::Split& data,
                      comm::ProcessGroup& group) {
  auto own = job;
  const auto shape = shape_of(job, *data.train);
  const auto plan = settle_plan(own, shape, group);
  if (plan && group.rank() == 0) {
    log::info("chosen   " + plan->text() + ": about " + format_number("%.4g", plan->seconds * 1e3) + " ms a step, " +
              format_bytes(plan->peak_bytes) + " at the peak");
    for (const auto& line : job::idle_settings(own)) log::warn(line);
  }
  settle_cut(own, shape, group);
  return TrainingRun(arguments, own, data, group, plan ? plan->seconds : 0)();
}

}  // namespace tandem::cli
