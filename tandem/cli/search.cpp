#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/base/suggest.h"
#include "tandem/cli/train.h"
#include "tandem/models/model.h"
#include "tandem/models/space.h"
#include "tandem/settings/settings.h"

namespace tandem::cli {
namespace {

void choose_space(settings::Settings& settings) {
  const auto prefix = std::string(models::kSearchPrefix);
  if (!settings.given("model")) settings.choose("model", prefix + std::string(models::spaces().front().name));
  const auto& model = settings.get_string("model");
  if (models::is_supernet(model)) return;
  std::vector<std::string> names;
  for (const auto& space : models::spaces()) names.push_back(prefix + std::string(space.name));
  throw SettingsError("model is " + quote(model) + " in a search, wanted " + one_of(names),
                      "tandem train model=" + model + " trains it");
}

}  // namespace

int run_search(const Arguments& arguments) { return train_with(arguments, choose_space); }

}  // namespace tandem::cli
