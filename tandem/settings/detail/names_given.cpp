#include "tandem/settings/detail/names_given.h"

#include <string>

#include "tandem/base/error.h"

namespace tandem::settings::detail {

void NamesGiven::add(std::string_view key) {
  const auto& setting = *find_setting(schema_, key);
  auto& names = names_[&setting - schema_.data()];
  (key == setting.former_key ? names.former : names.current) = true;
  if (!names.current || !names.former) return;
  const auto former = std::string(setting.former_key);
  throw SettingsError(former + " is given beside " + std::string(setting.key) + ", its name by now, wanted one of them",
                      "leave " + former + " out");
}

}  // namespace tandem::settings::detail
