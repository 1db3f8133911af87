#include "tandem/job/sections/presets.h"

#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/models/model.h"
#include "tandem/models/search_method.h"

namespace tandem::job {
namespace {

struct Preset {
  std::function<bool(const settings::Settings& settings)> is_for;
  std::vector<std::pair<std::string_view, std::string_view>> values;
};

std::function<bool(const settings::Settings&)> with_model(bool (*is_for)(std::string_view model)) {
  return [is_for](const auto& settings) { return is_for(settings.get_string("model")); };
}

bool leaves_operations_out(const settings::Settings& settings) {
  return models::is_supernet(settings.get_string("model")) &&
         models::search_method(settings.get_string("search.method")).leaves_out;
}

bool has_patches(const settings::Settings& settings) { return models::has_patches(settings.get_string("model")); }

bool may_choose_for_patches(const settings::Settings& settings) {
  return has_patches(settings) && !settings.given("train.optimizer");
}

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {with_model(models::has_cells), {{"embedding", "0"}, {"head", "linear"}}},
      {with_model(models::is_supernet),
       {{"head.parallel", "replicated"},
        {"model.cells", "8"},
        {"model.channels", "16"},
        {"train.epochs", "50"},
        {"train.batch", "64"},
        {"train.lr", "0.025"},
        {"train.lr_min", "0.001"},
        {"train.lr_every", "epoch"},
        {"train.schedule", "cosine"},
        {"train.nesterov", "false"},
        {"train.weight_decay", "0.0003"},
        {"train.clip", "5"}}},
      {has_patches, {{"model.activation", "gelu-fused"}, {"train.clip", "1"}}},
      {may_choose_for_patches, {{"train.optimizer", "adamw"}, {"train.lr", "0.001"}, {"train.weight_decay", "0.05"}}},
      {leaves_operations_out, {{"ddp.unused", "find"}}},
      {with_model(models::is_bench_201), {{"model.cells", "15"}, {"model.channels", "16"}}}};
  return all;
}

}  // namespace

void apply_presets(settings::Settings& settings) {
  for (const auto& preset : presets()) {
    if (!preset.is_for(settings)) continue;
    for (const auto& [key, value] : preset.values) {
      if (!settings.given(key)) settings.choose(key, value);
    }
  }
}

}  // namespace tandem::job
