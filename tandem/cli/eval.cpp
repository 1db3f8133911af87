#include <ATen/ATen.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/log.h"
#include "tandem/base/quote.h"
#include "tandem/base/seconds.h"
#include "tandem/cli/result.h"
#include "tandem/cli/run/answers.h"
#include "tandem/cli/run/ranks.h"
#include "tandem/cli/run/scores.h"
#include "tandem/cli/use.h"
#include "tandem/job/parts.h"
#include "tandem/job/ranks.h"
#include "tandem/memory/device_memory.h"
#include "tandem/memory/meter.h"
#include "tandem/storage/named_file.h"
#include "tandem/train/evaluate.h"

namespace tandem::cli {
namespace {

using Clock = std::chrono::steady_clock;

const std::vector<settings::Setting>& eval_settings() {
  static const auto rows = use_settings(true, {});
  return rows;
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

/// What eval knows before the ranks begin.
struct Test {
  const Use& use;
  const data::Split& data;
  ClassNames names;
  job::DataShape shape;
  storage::Identity identity;  // that a checkpoint must have; empty: it says itself what model it is of

  bool has_images() const { return data.test && data.test->size() > 0; }
  bool can_classify() const { return has_images() && !data.has_other_classes; }
};

Test test_of(const Use& use, const data::Split& data) {
  Test test{.use = use, .data = data, .names = ClassNames(use.model, data.train.get())};
  if (!test.has_images() && !data.retrieval && use.job.evaluation.pairs.empty())
    throw DataError("the test set is empty, wanted at least one image",
                    "glyphs take data.test_fonts, folders a test folder or data.hold_out; or give eval.pairs");
  if (use.model.card()) {
    test.shape = use.model.card()->shape;
  } else {
    test.shape = shape_of(use.job, *data.train);
    test.identity = weights_identity(use.job, identity(use.job, *data.train));
  }
  return test;
}

/// The answers are of rank 0.
struct Tested {
  train::Scores scores;
  std::optional<TestAnswers> answers;
  double seconds = 0;
};

Tested test_images(const Test& test, const job::TrainedTask& opened, comm::ProcessGroup& group) {
  Tested tested;
  if (!test.can_classify()) return tested;
  const auto start = Clock::now();
  const auto loader = job::evaluation_loader(test.use.job, *test.data.test, group);
  job::ImageAnswers answers(*opened.mesh, 1);
  tested.scores = train::evaluate(*opened.task, *loader, test.shape.classes, opened.mesh->batch(), {},
                                  [&](const data::Batch& batch, const Ranking& best, std::span<const int64_t> sizes) {
                                    answers.add(batch, best, sizes);
                                  });
  tested.seconds = seconds_since(start);
  if (group.rank() == 0) tested.answers = answers_of(answers, *test.data.test, test.names);
  return tested;
}

/// Images a second.
double rate_of(const Tested& tested) {
  return tested.seconds > 0 ? static_cast<double>(tested.scores.samples) / tested.seconds : 0;
}

nlohmann::json json_of(const Tested& tested) {
  nlohmann::json json = {
      {"test_images", tested.scores.samples}, {"images_per_second", rate_of(tested)}, {"seconds", tested.seconds}};
  for (const auto* key : {"top1", "top5", "loss"}) {
    json[key] = tested.scores.samples > 0 ? nlohmann::json(tested.scores.value(key)) : nlohmann::json();
  }
  for (const auto* key : {"classes", "confusion", "confused", "worst"}) json[key] = nullptr;
  if (!tested.answers) return json;
  json["classes"] = classes_json(*tested.answers);
  json["confusion"] = confusion_json(*tested.answers);
  json["confused"] = confused_json(*tested.answers);
  json["worst"] = worst_json(*tested.answers);
  return json;
}

std::string page_of(const Test& test, const Tested& tested, const job::TrainedModel::Filled& from) {
  report::RunReport page;
  page.title = "Test of " + test.use.job.model.name + ", " + format_count(test.shape.classes) + " classes";
  page.subtitle = from.file + " · " + test.data.summary;
  for (const auto& score : tested.scores.list) {
    if (score.unit == train::ScoreUnit::fraction) page.summary.emplace_back(score.label, format_percent(score.value));
  }
  page.summary.emplace_back("images", format_count(tested.scores.samples));
  if (tested.answers) add_answers(page, *tested.answers, *test.data.test);
  return report::render_report(page);
}

void evaluate_rank(const Arguments& arguments, const Test& test, comm::ProcessGroup& group) {
  const auto& job = test.use.job;
  const auto opened = job::open_trained(test.use.model, job, test.shape, test.identity, group);
  group.meter().reset();
  const auto tested = test_images(test, opened, group);
  const auto features = score_features(job, *opened.task, test.data, *opened.mesh);
  const auto facts = job::gather_facts(facts_of(job, *opened.task, group), group);
  tell_odd_images(test.data, group);
  if (group.rank() != 0) return;
  auto result = json_of(tested);
  result["steps"] = opened.from.step;
  result["num_classes"] = test.shape.classes;
  result["ranks"] = group.size();
  result["memory"] = memory_json(facts);
  result["retrieval"] = retrieval_json(features);
  result["pairs"] = pairs_json(features);
  result["verification"] = verification_json(features);
  result["identification"] = identification_json(features);
  result["wire"] = wire_json(facts);
  result["checkpoint"] = opened.from.file;
  if (const auto file = arguments.flag("--page")) {
    storage::write_named_file("--page file", *file, page_of(test, tested, opened.from));
  }
  const auto scores = tested.answers ? scores_text(tested.scores, rate_of(tested)) + answers_text(*tested.answers) : "";
  write_result(arguments, scores + features_text(features) + memory_text(facts) + wire_text(facts), result);
}

/// A folder of images is data, not a word.
void check_paths(const Use& use) {
  if (use.paths.empty()) return;
  const auto path = use.paths.front().string();
  throw UsageError("argument " + quote(path) + " is no setting, wanted key=value",
                   "data=images:" + printable(path, 120) + " tests on a folder of images");
}

}  // namespace

settings::Schema eval_schema() { return eval_settings(); }

int run_eval(const Arguments& arguments) {
  memory::install_meter();
  auto use = read_use("eval", arguments, eval_settings());
  check_paths(use);
  job::check_pairs(use.job);
  const bool compares = use.job.evaluation.verifies || use.job.evaluation.identifies;
  const auto data = open_test_data(use.model, use.job, compares);
  if (job::prints_for_the_job()) log::info(data.summary);
  if (job::prints_for_the_job() && data.retrieval) log::info("retrieval " + data.retrieval->what);
  const auto test = test_of(use, data);
  job::on_ranks(use.job, [&](comm::ProcessGroup& group) { evaluate_rank(arguments, test, group); });
  return 0;
}

}  // namespace tandem::cli
