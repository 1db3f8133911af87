#include <ATen/ATen.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/log.h"
#include "tandem/cli/command.h"
#include "tandem/cli/job.h"
#include "tandem/cli/job_schema.h"
#include "tandem/cli/memory_probe.h"
#include "tandem/cli/odd_images.h"
#include "tandem/cli/result.h"
#include "tandem/cli/retrieval_scores.h"
#include "tandem/cli/run_facts.h"
#include "tandem/cli/stop_signals.h"
#include "tandem/comm/rendezvous.h"
#include "tandem/memory/meter.h"

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

/// Defaults, then those that the run was trained with unless a file is named, then the words.
settings::Settings evaluation_settings(const Arguments& arguments) {
  const auto settings = read_settings(arguments);
  const auto source = checkpoint_source(settings);
  if (arguments.flag("--config")) return settings;
  const auto saved = train::locate_checkpoints(source).folder.parent_path() / "settings.toml";
  if (!std::filesystem::exists(saved)) return settings;
  settings::Settings run(job_schema());
  run.load_file(saved);
  run.set("resume", "none");
  const auto launch = comm::detect_launch();
  if (launch && launch->size > 1) run.set("ranks", std::to_string(launch->size));  // the words may still say otherwise
  run.apply(arguments.words);
  return run;
}

std::string scores_text(const train::Scores& scores, double rate) {
  char loss[32];
  std::snprintf(loss, sizeof loss, "%.4f", scores.loss);
  return "top-1 " + format_percent(scores.top1) + "  top-5 " + format_percent(scores.top5) + "  loss " + loss + "  (" +
         format_count(scores.samples) + " images)      " + format_count(std::llround(rate)) + " images/s\n";
}

void evaluate_rank(const Arguments& arguments, const settings::Settings& settings, const data::Split& data,
                   comm::ProcessGroup& group) {
  const bool has_test = data.test && data.test->size() > 0;
  if (!has_test && !data.retrieval && settings.get_list("eval.pairs").empty())
    throw DataError("the test set is empty, wanted at least one image",
                    "glyphs take data.test_fonts, folders a test folder or data.hold_out; or give eval.pairs");
  const auto task = make_task(settings, *data.train, head_form(settings), group);
  const auto place = train::locate_checkpoints(checkpoint_source(settings));
  const train::CheckpointStore store(place.folder);
  train::TrainingState state;
  state.tensors = task->weights();
  state.job = trainer_options(settings, *data.train, 1).shared;
  const auto restored = train::load_checkpoint(store, state, place.newest, group);
  if (!restored) {
    throw DataError("'" + place.folder.string() + "' holds no whole checkpoint of this job", "see the warnings above");
  }
  if (group.rank() == 0) log::info("tests    " + store.path(restored->step).string());
  group.meter().reset();
  const auto start = Clock::now();
  train::Scores scores;
  if (has_test) {
    const auto loader = evaluation_loader(settings, *data.test, group);
    scores = train::evaluate(*task, *loader, num_classes(settings, *data.train), group);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const auto retrieval = data.retrieval ? retrieval_scores(settings, *task, *data.retrieval, group) : nlohmann::json();
  const auto pairs = pair_scores(settings, *task, group);
  RankFacts own;
  own.at_peak = memory::account(group.rank()).at_peak;
  for (const auto& parameter : task->parameters()) {
    if (parameter.name == kHeadWeight) own.head_bytes = static_cast<int64_t>(parameter.tensor.nbytes());
  }
  own.wire = group.meter().counts();
  const auto facts = gather_facts(own, group);
  const auto* query = data.retrieval ? data.retrieval->query.images.get() : nullptr;
  const auto* gallery = data.retrieval ? data.retrieval->gallery.images.get() : nullptr;
  if (const auto line = odd_images({data.test.get(), query, gallery}, group)) log::warn(*line);
  if (group.rank() != 0) return;
  const double rate = static_cast<double>(scores.samples) / seconds;
  const nlohmann::json result = {{"top1", scores.top1},       {"top5", scores.top5},
                                 {"loss", scores.loss},       {"test_images", scores.samples},
                                 {"images_per_second", rate}, {"seconds", seconds},
                                 {"steps", restored->step},   {"classes", num_classes(settings, *data.train)},
                                 {"ranks", group.size()},     {"memory", memory_json(facts)},
                                 {"retrieval", retrieval},    {"pairs", pairs},
                                 {"wire", wire_json(facts)},  {"checkpoint", store.path(restored->step).string()}};
  std::string text = has_test ? scores_text(scores, rate) : "";
  text += retrieval_text(retrieval) + pairs_text(pairs) + memory_text(facts) + wire_text(facts);
  write_result(arguments, text, result);
}

}  // namespace

int run_eval(const Arguments& arguments) {
  memory::install_meter();
  auto settings = evaluation_settings(arguments);
  world_size(settings);
  if (prints_for_the_job()) check_result_file(arguments);
  check_pairs(settings);
  const auto data = open_data(settings);
  if (prints_for_the_job()) log::info(data.summary);
  if (prints_for_the_job() && data.retrieval) log::info("retrieval " + data.retrieval->what);
  on_ranks(settings, [&](comm::ProcessGroup& group) { evaluate_rank(arguments, settings, data, group); });
  return 0;
}

}  // namespace tandem::cli
