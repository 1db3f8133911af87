#include "tandem/job/sections/presets.h"

#include <string_view>
#include <utility>
#include <vector>

#include "tandem/models/model.h"

namespace tandem::job {
namespace {

struct Preset {
  bool (*is_for)(std::string_view model);
  std::vector<std::pair<std::string_view, std::string_view>> values;
};

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {{models::has_cells, {{"embedding", "0"}, {"head", "linear"}}},
                                          {models::is_bench_201, {{"model.cells", "15"}, {"model.channels", "16"}}},
                                          {models::is_supernet,
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
                                            {"train.clip", "5"}}}};
  return all;
}

}  // namespace

void apply_presets(settings::Settings& settings) {
  const auto model = settings.get_string("model");
  for (const auto& preset : presets()) {
    if (!preset.is_for(model)) continue;
    for (const auto& [key, value] : preset.values) {
      if (!settings.given(key)) settings.choose(key, value);
    }
  }
}

}  // namespace tandem::job
