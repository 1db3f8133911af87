#include "tandem/cli/run/loss_check.h"

#include <algorithm>
#include <cmath>

#include "tandem/cli/run/scores.h"

namespace tandem::cli {
namespace {

constexpr double kFewestSteps = 50;
constexpr double kFlat = 0.97;  // of a mean to the one before it

/// The number of hits by chance is Poisson-distributed with mean samples / classes.
bool is_better_than_chance(const train::Scores& scores, int64_t classes) {
  const auto samples = static_cast<double>(scores.samples);
  const double expected = samples / static_cast<double>(classes);
  return scores.value("top1") * samples > expected + 3 * std::sqrt(expected);
}

/// Of the losses at steps above `begin` up to `end`; NaN if there are none.
double mean_loss(const Curve& losses, double begin, double end) {
  double sum = 0, count = 0;
  for (const auto& [step, loss] : losses) {
    if (step <= begin || step > end) continue;
    sum += loss;
    ++count;
  }
  return sum / count;
}

std::string mean_text(double mean, double begin, double end) {
  return short_number(mean) + " on average of steps " + std::to_string(static_cast<int64_t>(begin) + 1) + ".." +
         std::to_string(static_cast<int64_t>(end));
}

}  // namespace

std::string stuck_loss(const Curve& losses, const ChanceLevel& chance, const std::optional<train::Scores>& scores) {
  if (losses.empty() || losses.front().first != 1 || losses.back().first < kFewestSteps) return "";
  if (scores && is_better_than_chance(*scores, chance.classes)) return "";
  const double first = losses.front().second;
  const double end = losses.back().first, middle = std::floor(0.5 * end), late = std::floor(0.75 * end);
  const double mean = mean_loss(losses, late, end), earlier = mean_loss(losses, middle, late);
  const double known = std::log(static_cast<double>(chance.classes));
  const std::string remedy = ": lower train.lr, train longer";
  if (mean >= (chance.is_plain ? std::min(first, known) : first)) {
    return "loss has not fallen: " + short_number(first) + " at step 1, " + mean_text(mean, late, end) +
           (chance.is_plain ? " (chance is " + short_number(known) + ")" : "") + remedy;
  }
  if (!scores || !(mean >= kFlat * earlier)) return "";
  return "loss no longer falls: " + mean_text(earlier, middle, late) + ", " + mean_text(mean, late, end) +
         ", and the test is no better than chance" + remedy;
}

}  // namespace tandem::cli
