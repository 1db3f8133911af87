#pragma once
#include <string_view>
#include <vector>

#include "tandem/settings/schema.h"

namespace tandem::settings::detail {

/// The names by which one file, or one list of words, gives settings.
class NamesGiven {
 public:
  explicit NamesGiven(Schema schema) : schema_(schema), names_(schema.size()) {}

  /// `key` must be a setting's. Throws SettingsError if the setting was given by another name that is a former one.
  void add(std::string_view key);

 private:
  struct Names {
    bool current = false, former = false;
  };

  Schema schema_;
  std::vector<Names> names_;
};

}  // namespace tandem::settings::detail
