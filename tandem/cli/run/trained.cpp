#include "tandem/cli/run/trained.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tandem/base/format.h"
#include "tandem/cli/run/ranks.h"
#include "tandem/memory/meter.h"

namespace tandem::cli {
namespace {

nlohmann::json losses_json(const train::Outcome& outcome) {
  auto losses = nlohmann::json::array();
  for (const auto& loss : outcome.first_losses) losses.push_back(loss ? nlohmann::json(*loss) : nlohmann::json());
  return losses;
}

nlohmann::json lag_json(const std::optional<parallel::GradientSync::Lag>& lag) {
  if (!lag) return nullptr;
  const auto steps = static_cast<double>(std::max<int64_t>(1, lag->steps));
  return {{"most", lag->most}, {"mean", static_cast<double>(lag->sum) / steps}};
}

}  // namespace

double images_per_second(const train::Outcome& outcome) {
  return outcome.seconds > 0 ? static_cast<double>(outcome.images) / outcome.seconds : 0;
}

nlohmann::json trained_json(const Trained& trained) {
  const auto& outcome = trained.outcome;
  const auto& scaling = trained.scaling;
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
                           {"steps", outcome.steps},
                           {"skipped_steps", outcome.skipped_steps},
                           {"loss_scale", scaling ? nlohmann::json(scaling->scale) : nlohmann::json()},
                           {"left_out_steps", scaling ? scaling->left_out : 0},
                           {"classes", trained.classes},
                           {"ranks", trained.ranks.size()},
                           {"replicas", trained.replicas},
                           {"parallel", trained.parallel},
                           {"transport", name_of(trained.transport)},
                           {"overlap", trained.overlap ? nlohmann::json(trained.overlap->hidden()) : nlohmann::json()},
                           {"staleness", lag_json(trained.lag)},
                           {"memory", memory_json(trained.ranks)},
                           {"wire", wire_json(trained.ranks)},
                           {"checkpoint", outcome.checkpoint.string()},
                           {"weights_hash", trained.weights_hash},
                           {"run", trained.folder.string()},
                           {"retrieval", retrieval_json(trained.features)},
                           {"pairs", pairs_json(trained.features)},
                           {"stopped", outcome.stopped}};
  for (const auto& score : outcome.scores.list) {
    result[score.name == "loss" ? "test_loss" : score.name] = score.value;  // "loss" is that of training
  }
  if (outcome.images == 0) result["loss"] = result["images_per_second"] = nullptr;
  result["memory"]["unattributed"] = memory_json(memory::account(Context::kNobody).at_peak);
  for (const auto& [form, ranks] : trained.forms) {
    auto& list = result["memory"]["forms"][std::string(form->name)]["ranks"];
    for (const auto& bytes : ranks) list.push_back(memory_json(bytes));
  }
  return result;
}

std::string trained_text(const Trained& trained, const std::filesystem::path& report) {
  std::string text;
  if (trained.outcome.scores.samples > 0) {
    text = fractions_text(trained.outcome.scores) + "  (held-out test set)      " +
           format_count(std::llround(images_per_second(trained.outcome))) + " images/s\n";
  }
  text += features_text(trained.features) + memory_text(trained.ranks) + wire_text(trained.ranks);
  if (trained.overlap)
    text += "overlap  " + format_percent(trained.overlap->hidden()) + " of the gradients' travel is hidden\n";
  if (trained.lag) {
    text += "stale    updates that the weights lacked: at most " + format_count(trained.lag->most) + " a step, " +
            format_count(trained.lag->sum) + " over " + format_count(trained.lag->steps) + " steps of the ranks\n";
  }
  if (trained.scaling) {
    text += "scale    " + format_count(std::llround(trained.scaling->scale)) + " of the loss, " +
            format_count(trained.scaling->left_out) + " steps left out for it\n";
  }
  if (!report.empty()) text += "report   " + report.string() + "\n";
  return text;
}

}  // namespace tandem::cli
