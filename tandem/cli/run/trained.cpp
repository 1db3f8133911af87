#include "tandem/cli/run/trained.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tandem/base/format.h"
#include "tandem/cli/run/ranks.h"
#include "tandem/memory/meter.h"
#include "tandem/train/checkpoint_store.h"
#include "tandem/train/evaluate.h"

namespace tandem::cli {
namespace {

nlohmann::json losses_json(const train::Outcome& outcome) {
  auto losses = nlohmann::json::array();
  for (const auto& loss : outcome.first_losses) losses.push_back(loss ? nlohmann::json(*loss) : nlohmann::json());
  return losses;
}

nlohmann::json number_json(const std::optional<double>& number) {
  return number ? nlohmann::json(*number) : nlohmann::json();
}

int64_t count_of(const train::Facts& facts, std::string_view name) {
  return std::llround(train::value_of(facts, name).value_or(0));
}

nlohmann::json mesh_json(const parallel::MeshSizes& mesh) {
  return {{"data", mesh.data}, {"shard", mesh.shard}, {"tensor", mesh.tensor}, {"pipeline", mesh.pipeline}};
}

nlohmann::json lag_json(const train::Facts& facts) {
  const auto steps = train::value_of(facts, "steps_with_lag");
  if (!steps) return nullptr;
  return {{"most", count_of(facts, "most_lag")},
          {"mean", train::value_of(facts, "sum_of_lags").value() / std::max(1.0, *steps)}};
}

/// By the name that other commands take; "": it lies in the run from which this one goes on.
std::string best_checkpoint(const Trained& trained) {
  const auto name = trained.folder / "checkpoints" / train::kBestName;
  const train::CheckpointStore store(name.parent_path());
  const bool is_here = std::ranges::count(store.list(), trained.outcome.best->step) > 0;
  return is_here ? name.string() : "";
}

nlohmann::json best_json(const Trained& trained) {
  const auto& best = trained.outcome.best;
  if (!best) return nullptr;
  return {
      {"metric", best->metric}, {"value", best->value}, {"step", best->step}, {"checkpoint", best_checkpoint(trained)}};
}

std::string best_text(const Trained& trained) {
  const auto& best = trained.outcome.best;
  if (!best) return "";
  const auto metric = std::ranges::find(train::metrics(), best->metric, &train::Score::name);
  const bool is_fraction = metric->unit == train::ScoreUnit::fraction;
  const auto place = best_checkpoint(trained);
  return "best     " + metric->label + " " + (is_fraction ? format_percent(best->value) : short_number(best->value)) +
         " after step " + format_count(best->step) + ", " +
         (place.empty() ? "whose checkpoint is in the run from which this one goes on" : place) + "\n";
}

nlohmann::json predicted_json(const Trained& trained) {
  const double seconds = trained.predicted_step_seconds;
  return seconds > 0 ? nlohmann::json(seconds) : nlohmann::json();
}

}  // namespace

double images_per_second(const train::Outcome& outcome) {
  return outcome.seconds > 0 ? static_cast<double>(outcome.images) / outcome.seconds : 0;
}

nlohmann::json trained_json(const Trained& trained) {
  const auto& outcome = trained.outcome;
  const auto& facts = trained.facts;
  nlohmann::json result = {{"top1", nullptr},
                           {"top5", nullptr},
                           {"loss", outcome.loss},
                           {"losses", losses_json(outcome)},
                           {"test_loss", nullptr},
                           {"test_step", outcome.scored_step},
                           {"test_images", outcome.scores.samples},
                           {"images_per_second", images_per_second(outcome)},
                           {"seconds", outcome.seconds},
                           {"total_seconds", outcome.total_seconds},
                           {"step_seconds", outcome.step_seconds},
                           {"predicted_step_seconds", predicted_json(trained)},
                           {"steps", outcome.steps},
                           {"skipped_steps", outcome.skipped_steps},
                           {"loss_scale", number_json(value_of(facts, "loss_scale"))},
                           {"left_out_steps", count_of(facts, "left_out_steps")},
                           {"classes", trained.classes},
                           {"ranks", trained.ranks.size()},
                           {"replicas", trained.replicas},
                           {"parallel", trained.parallel},
                           {"mesh", mesh_json(trained.mesh)},
                           {"transport", name_of(trained.transport)},
                           {"overlap", number_json(value_of(facts, "hidden"))},
                           {"staleness", lag_json(facts)},
                           {"memory", memory_json(trained.ranks)},
                           {"wire", wire_json(trained.ranks)},
                           {"checkpoint", outcome.checkpoint.string()},
                           {"best", best_json(trained)},
                           {"weights_hash", trained.weights_hash},
                           {"run", trained.folder.string()},
                           {"retrieval", retrieval_json(trained.features)},
                           {"pairs", pairs_json(trained.features)},
                           {"verification", verification_json(trained.features)},
                           {"identification", identification_json(trained.features)},
                           {"stopped", outcome.stopped}};
  for (const auto& score : outcome.scores.list) {
    result[score.name == "loss" ? "test_loss" : score.name] = score.value;  // "loss" is that of training
  }
  if (trained.found) {
    result["alphas_hash"] = trained.found->alphas_hash;
    result["genotype"] = trained.found->genotype;
  }
  if (outcome.images == 0) result["loss"] = result["images_per_second"] = nullptr;
  result["memory"]["unattributed"] = memory_json(memory::account(Context::kNobody).at_peak);
  for (const auto& [form, ranks] : trained.forms) {
    auto& list = result["memory"]["forms"][form]["ranks"];
    for (const auto& bytes : ranks) list.push_back(memory_json(bytes));
  }
  return result;
}

std::string trained_text(const Trained& trained, const std::filesystem::path& report) {
  std::string text;
  if (trained.outcome.scores.samples > 0) {
    text = fractions_text(trained.outcome.scores) + "  (" + std::string(trained.tests) + ")      " +
           format_count(std::llround(images_per_second(trained.outcome))) + " images/s\n";
  }
  text += best_text(trained);
  if (trained.found) text += "cells    " + trained.found->genotype + "\n";
  text += features_text(trained.features) + memory_text(trained.ranks) + wire_text(trained.ranks);
  if (const auto hidden = value_of(trained.facts, "hidden")) {
    text += "overlap  " + format_percent(*hidden) + " of the gradients' travel is hidden\n";
  }
  if (trained.predicted_step_seconds > 0) {
    text += "step     " + format_number("%.4g", trained.outcome.step_seconds * 1e3) + " ms, predicted " +
            format_number("%.4g", trained.predicted_step_seconds * 1e3) + " ms\n";
  }
  const auto count = [&](std::string_view name) { return format_count(count_of(trained.facts, name)); };
  if (value_of(trained.facts, "steps_with_lag")) {
    text += "stale    updates that the weights lacked: at most " + count("most_lag") + " a step, " +
            count("sum_of_lags") + " over " + count("steps_with_lag") + " steps of the ranks\n";
  }
  if (value_of(trained.facts, "loss_scale")) {
    text += "scale    " + count("loss_scale") + " of the loss, " + count("left_out_steps") + " steps left out for it\n";
  }
  if (!report.empty()) text += "report   " + report.string() + "\n";
  return text;
}

}  // namespace tandem::cli
