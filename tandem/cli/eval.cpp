#include <ATen/ATen.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/log.h"
#include "tandem/base/quote.h"
#include "tandem/base/seconds.h"
#include "tandem/cli/command.h"
#include "tandem/cli/result.h"
#include "tandem/cli/run/ranks.h"
#include "tandem/cli/run/resume.h"
#include "tandem/cli/run/scores.h"
#include "tandem/job/parts.h"
#include "tandem/job/ranks.h"
#include "tandem/memory/device_memory.h"
#include "tandem/memory/meter.h"
#include "tandem/train/evaluate.h"

namespace tandem::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// Where the weights come from: resume=PATH, else the run in `out`.
std::string checkpoint_source(const settings::Settings& settings) {
  const auto &resume = settings.get_string("resume"), &out = settings.get_string("out");
  if (resume != "none" && resume != "auto") return resume;
  if (!out.empty()) return out;
  throw SettingsError("resume is " + resume + " and out is empty, wanted a checkpoint to test",
                      "add resume=FOLDER, a run's folder or one of its checkpoints");
}

bool holds_checkpoints(const std::string& source) {
  return !train::CheckpointStore(train::locate_checkpoints(source).folder).list().empty();
}

/// Before any data is opened: without a run's settings these would be the default ones.
void check_source(const std::string& source) {
  if (holds_checkpoints(source)) return;
  throw DataError("'" + source + "' holds no checkpoint, wanted a run's folder, its checkpoints or one of them");
}

/// A run's folder that is written without its key.
void check_words(const Arguments& arguments) {
  for (const auto& word : arguments.words) {
    std::error_code ignored;
    if (word.find('=') != word.npos || !std::filesystem::is_directory(word, ignored)) continue;
    if (!holds_checkpoints(word)) continue;
    throw UsageError("argument " + quote(word) + " is a run's folder, wanted key=value", "tandem eval resume=" + word);
  }
}

/// The defaults, then the settings that the run was trained with (unless --config names a file), then the words.
settings::Settings evaluation_settings(const Arguments& arguments) {
  const auto settings = read_settings(arguments);
  const auto source = checkpoint_source(settings);
  check_source(source);
  if (arguments.flag("--config")) return settings;
  auto run = saved_settings(source);
  if (!run) return settings;
  run->set("ps.servers", "0");  // there is nothing to serve
  run->apply(arguments.words);
  return *std::move(run);
}

std::string scores_text(const train::Scores& scores, double rate) {
  char loss[32];
  std::snprintf(loss, sizeof loss, "%.4f", scores.value("loss"));
  return fractions_text(scores) + "  loss " + loss + "  (" + format_count(scores.samples) + " images)      " +
         format_count(std::llround(rate)) + " images/s\n";
}

job::RankFacts facts_of(const job::Job& job, const train::Task& task, comm::ProcessGroup& group) {
  job::RankFacts facts;
  facts.at_peak = memory::account(group.rank()).at_peak;
  facts.device = memory::device_bytes(job.parallel.device);
  for (const auto& parameter : task.parameters()) {
    if (parameter.name == job::kHeadWeight) facts.head_bytes = static_cast<int64_t>(parameter.tensor.nbytes());
  }
  facts.wire = group.meter().counts();
  return facts;
}

void evaluate_rank(const Arguments& arguments, const job::Job& job, const data::Split& data,
                   comm::ProcessGroup& group) {
  const bool has_test = data.test && data.test->size() > 0;
  if (!has_test && !data.retrieval && job.evaluation.pairs.empty())
    throw DataError("the test set is empty, wanted at least one image",
                    "glyphs take data.test_fonts, folders a test folder or data.hold_out; or give eval.pairs");
  const auto shape = shape_of(job, *data.train);
  auto mesh = make_mesh(job, group);
  const auto task = make_task(job, shape, even_counts(job, shape.classes, group.size()), mesh);
  const auto place = train::locate_checkpoints(checkpoint_source(job.settings));
  const train::CheckpointStore store(place.folder);
  train::TrainingState state;
  state.tensors = task->weights();
  state.identity = weights_identity(job, identity(job, *data.train));
  const auto restored = train::load_checkpoint(store, state, place.newest, group);
  if (!restored) {
    throw DataError("'" + place.folder.string() + "' holds no whole checkpoint of this job", "see the warnings above");
  }
  if (group.rank() == 0) log::info("tests    " + store.path(restored->step).string());
  group.meter().reset();
  const auto start = Clock::now();
  train::Scores scores;
  if (has_test) {
    const auto loader = evaluation_loader(job, *data.test, group);
    scores = train::evaluate(*task, *loader, shape.classes, mesh.batch());
  }
  const double seconds = seconds_since(start);
  const auto features = score_features(job, *task, data, mesh);
  const auto facts = gather_facts(facts_of(job, *task, group), group);
  tell_odd_images(data, group);
  if (group.rank() != 0) return;
  const double rate = static_cast<double>(scores.samples) / seconds;
  const nlohmann::json result = {{"top1", scores.value("top1")},
                                 {"top5", scores.value("top5")},
                                 {"loss", scores.value("loss")},
                                 {"test_images", scores.samples},
                                 {"images_per_second", rate},
                                 {"seconds", seconds},
                                 {"steps", restored->step},
                                 {"classes", shape.classes},
                                 {"ranks", group.size()},
                                 {"memory", memory_json(facts)},
                                 {"retrieval", retrieval_json(features)},
                                 {"pairs", pairs_json(features)},
                                 {"wire", wire_json(facts)},
                                 {"checkpoint", store.path(restored->step).string()}};
  const auto text = (has_test ? scores_text(scores, rate) : "") + features_text(features) + memory_text(facts);
  write_result(arguments, text + wire_text(facts), result);
}

}  // namespace

int run_eval(const Arguments& arguments) {
  memory::install_meter();
  check_words(arguments);
  auto job = job::read_job(evaluation_settings(arguments));
  job::check_pairs(job);
  const auto data = open_data(job);
  if (job::prints_for_the_job()) log::info(data.summary);
  if (job::prints_for_the_job() && data.retrieval) log::info("retrieval " + data.retrieval->what);
  job::on_ranks(job, [&](comm::ProcessGroup& group) { evaluate_rank(arguments, job, data, group); });
  return 0;
}

}  // namespace tandem::cli
