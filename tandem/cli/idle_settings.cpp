#include "tandem/cli/idle_settings.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "tandem/cli/head_settings.h"
#include "tandem/cli/job_schema.h"

namespace tandem::cli {
namespace {

/// `keys` change nothing while `without` holds.
struct Rule {
  std::vector<std::string_view> keys;
  bool (*without)(const settings::Settings&);
  std::string_view why;
};

bool has_glyphs(const settings::Settings& settings) { return settings.get_string("data") == "glyphs"; }
bool has_other_data(const settings::Settings& settings) { return !has_glyphs(settings); }
bool holds_nothing_out(const settings::Settings& settings) {
  const auto& data = settings.get_string("data");
  return !data.starts_with(kImagesPrefix) && !data.starts_with(kFacesPrefix);
}
bool is(const settings::Settings& settings, std::string_view key, std::string_view value) {
  return settings.get_string(key) == value;
}

bool changes_no_angle(const settings::Settings& settings) {
  return is(settings, "head", "softmax") || is(settings, "head", "normalised") || is(settings, "head", "cosface");
}

const std::array<Rule, 14>& rules() {
  static const std::array<Rule, 14> all = {{
      {{"data.classes", "data.train_fonts", "data.test_fonts", "data.unseen"}, has_other_data, "but with data=glyphs"},
      {{"data.hold_out"}, holds_nothing_out, "but with data=images:DIR and data=faces:DIR"},
      {{"head.margin"},
       [](const settings::Settings& s) { return !is(s, "head", "cosface") && !is(s, "head", "arcface"); },
       "but with head=cosface and head=arcface"},
      {{"head.margins"},
       [](const settings::Settings& s) { return !is(s, "head", "combined"); },
       "but with head=combined"},
      {{"head.factor", "head.anneal"},
       [](const settings::Settings& s) { return !anneals(s); },
       "but with head=sphereface and head=l-softmax"},
      {{"head.scale"},
       [](const settings::Settings& s) { return is(s, "head", "softmax") || anneals(s); },
       "with head=softmax, sphereface and l-softmax"},
      {{"head.beyond"}, changes_no_angle, "with head=softmax, normalised and cosface, which change no angle"},
      {{"head.gradient"}, changes_no_angle, "with head=softmax, normalised and cosface"},
      {{"head.keep_bytes", "head.fused_update", "head.precision", "head.sample"},
       [](const settings::Settings& s) { return is(s, "head.parallel", "naive"); },
       "with head.parallel=naive"},
      {{"head.log_q", "head.lazy"},
       [](const settings::Settings& s) { return s.get_float("head.sample") == 1.0; },
       "while all classes are scored (head.sample=1)"},
      {{"train.momentum", "train.nesterov"},
       [](const settings::Settings& s) { return is(s, "train.optimizer", "adamw"); },
       "with train.optimizer=adamw"},
      {{"train.beta1", "train.beta2"},
       [](const settings::Settings& s) { return is(s, "train.optimizer", "sgd"); },
       "with train.optimizer=sgd"},
      {{"train.milestones", "train.gamma"},
       [](const settings::Settings& s) { return !is(s, "train.schedule", "step"); },
       "but with train.schedule=step"},
      {{"train.epochs"}, [](const settings::Settings& s) { return s.get_int("train.steps") > 0; }, "with train.steps"},
  }};
  return all;
}

}  // namespace

bool is_idle(const settings::Settings& settings, std::string_view key) {
  return std::ranges::any_of(rules(), [&](const Rule& rule) {
    return std::ranges::find(rule.keys, key) != rule.keys.end() && rule.without(settings);
  });
}

std::vector<std::string> idle_settings(const settings::Settings& settings) {
  std::vector<std::string> lines;
  for (const auto& rule : rules()) {
    if (!rule.without(settings)) continue;
    for (const auto key : rule.keys) {
      if (settings.given(key) && !settings.is_default(key))
        lines.push_back(std::string(key) + " has no effect " + std::string(rule.why));
    }
  }
  if (is(settings, "train.schedule", "step") && settings.get_numbers("train.milestones").empty())
    lines.emplace_back("train.schedule is step without train.milestones: the learning rate never falls");
  return lines;
}

}  // namespace tandem::cli
