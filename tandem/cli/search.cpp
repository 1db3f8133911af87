#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/base/suggest.h"
#include "tandem/cli/train.h"
#include "tandem/job/job.h"
#include "tandem/models/model.h"
#include "tandem/models/space.h"
#include "tandem/settings/settings.h"

namespace tandem::cli {
namespace {

void choose_space(settings::Settings& settings) {
  const auto names = models::supernet_names();
  if (!settings.given("model")) settings.choose("model", names.front());
  const auto& model = settings.get_string("model");
  if (models::is_supernet(model)) return;
  throw SettingsError("model is " + quote(model) + " in a search, wanted " + one_of(names), "tandem train trains it");
}

}  // namespace

settings::Schema search_schema() {
  static const auto rows = job::settings_for(models::supernet_names().front());
  return rows;
}

int run_search(const Arguments& arguments) { return train_with(arguments, choose_space); }

}  // namespace tandem::cli
