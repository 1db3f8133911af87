#include "tandem/cli/head_settings.h"

#include "tandem/base/error.h"
#include "tandem/base/format.h"

namespace tandem::cli {
namespace {

using classifier::Beyond;
using classifier::Scoring;
using classifier::TargetGradient;

std::vector<double> read_numbers(const settings::Settings& settings, const char* key, size_t count) {
  const auto& numbers = settings.get_numbers(key);
  if (numbers.size() == count) return numbers;
  throw SettingsError(std::string(key) + " has " + std::to_string(numbers.size()) + " numbers, wanted " +
                      std::to_string(count));
}

Beyond read_beyond(const std::string& name) {
  if (name == "cosine") return Beyond::cosine;
  if (name == "linear") return Beyond::linear;
  if (name == "easy") return Beyond::easy;
  return name == "clamp" ? Beyond::clamp : Beyond::extend;
}

Scoring form_of(const settings::Settings& settings) {
  const auto& head = settings.get_string("head");
  const double scale = settings.get_float("head.scale"), margin = settings.get_float("head.margin");
  if (head == "softmax") return classifier::plain_softmax();
  if (head == "normalised") return classifier::normalised_softmax(scale);
  if (head == "arcface") return classifier::arcface(scale, margin);
  if (head == "combined") {
    const auto margins = read_numbers(settings, "head.margins", 3);
    return classifier::combined_margin(scale, margins[0], margins[1], margins[2]);
  }
  const double softening = anneals(settings) ? read_annealing(settings).at(0) : 0.0;
  if (head == "sphereface") return classifier::sphereface(settings.get_float("head.factor"), softening);
  if (head == "l-softmax") return classifier::large_margin_softmax(settings.get_float("head.factor"), softening);
  return classifier::cosface(scale, margin);
}

}  // namespace

classifier::Scoring read_scoring(const settings::Settings& settings) {
  auto scoring = form_of(settings);
  scoring.margin.beyond = read_beyond(settings.get_string("head.beyond"));
  const bool is_exact = settings.get_string("head.gradient") == "exact";
  scoring.margin.gradient = is_exact ? TargetGradient::exact : TargetGradient::detached;
  scoring.filter = settings.get_float("head.filter");
  scoring.smoothing = settings.get_float("head.smoothing");
  try {
    classifier::check_scoring(scoring);
  } catch (const std::exception& error) {
    throw SettingsError(message_of(error));
  }
  return scoring;
}

bool anneals(const settings::Settings& settings) {
  const auto& head = settings.get_string("head");
  return head == "sphereface" || head == "l-softmax";
}

classifier::Annealing read_annealing(const settings::Settings& settings) {
  const auto numbers = read_numbers(settings, "head.anneal", 4);
  return {.base = numbers[0], .gamma = numbers[1], .power = numbers[2], .least = numbers[3]};
}

std::optional<classifier::Sampling> read_sampling(const settings::Settings& settings) {
  const double rate = settings.get_float("head.sample");
  if (rate == 1.0) return std::nullopt;
  if (settings.get_float("head.smoothing") > 0) {
    throw SettingsError("head.sample is below 1 with head.smoothing, which is over all classes",
                        "leave one of them out");
  }
  return classifier::Sampling{rate, settings.get_bool("head.log_q")};
}

HeadForm head_form(const settings::Settings& settings) {
  return settings.get_string("head.parallel") == "naive" ? HeadForm::naive : HeadForm::sharded;
}

std::string_view name_of(HeadForm form) { return form == HeadForm::naive ? "naive" : "sharded"; }

classifier::HeadOptions read_head(const settings::Settings& settings, int64_t classes, int64_t dim, HeadForm form) {
  const bool is_naive = form == HeadForm::naive;
  return {.classes = classes,
          .dim = dim,
          .scoring = read_scoring(settings),
          .naive = is_naive,
          .blocks = {.keep_bytes = parse_bytes(settings.get_string("head.keep_bytes")).value(),
                     .bf16 = settings.get_string("head.precision") == "bf16"},
          .sampling = is_naive ? std::nullopt : read_sampling(settings),
          .seed = static_cast<uint64_t>(settings.get_int("seed")),
          .dtype = settings.get_string("train.precision") == "float64" ? at::kDouble : at::kFloat};
}

}  // namespace tandem::cli
