#include "tandem/cli/run/loss_check.h"

#include <algorithm>
#include <cmath>

#include "tandem/cli/run/scores.h"

namespace tandem::cli {
namespace {

constexpr double kFewestSteps = 50;

/// The number of hits by chance is Poisson-distributed with mean samples / classes.
bool is_better_than_chance(const train::Scores& scores, int64_t classes) {
  const auto samples = static_cast<double>(scores.samples);
  const double expected = samples / static_cast<double>(classes);
  return scores.value("top1") * samples > expected + 3 * std::sqrt(expected);
}

}  // namespace

std::string stuck_loss(const Curve& losses, const ChanceLevel& chance, const std::optional<train::Scores>& scores) {
  if (losses.empty() || losses.front().first != 1 || losses.back().first < kFewestSteps) return "";
  if (scores && is_better_than_chance(*scores, chance.classes)) return "";
  const double first = losses.front().second;
  const double last_step = losses.back().first, from = std::floor(0.75 * last_step) + 1;
  double sum = 0, count = 0;
  for (const auto& [step, loss] : losses) {
    if (step < from) continue;
    sum += loss;
    ++count;
  }
  const double mean = sum / count, known = std::log(static_cast<double>(chance.classes));
  if (!(mean >= (chance.is_plain ? std::min(first, known) : first))) return "";
  return "loss has not fallen: " + short_number(first) + " at step 1, " + short_number(mean) + " on average of steps " +
         std::to_string(static_cast<int64_t>(from)) + ".." + std::to_string(static_cast<int64_t>(last_step)) +
         (chance.is_plain ? " (chance is " + short_number(known) + ")" : "") + ": lower train.lr, train longer";
}

}  // namespace tandem::cli
