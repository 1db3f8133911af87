#pragma once
#include <cstdint>
#include <string>

#include "tandem/base/error.h"

namespace tandem::data {

/// True if image i of a class of `count` images goes to the test set: every `every`-th image does; of a class with
/// fewer than `every` images the last one, unless it is the only one.
constexpr bool is_held_out(int64_t i, int64_t count, int64_t every) {
  const bool only_last = count < every && count > 1;
  return only_last ? i == count - 1 : i % every == every - 1;
}

/// Throws SettingsError (below 2).
inline void check_hold_out(int64_t every) {
  if (every < 2) throw SettingsError("hold_out is " + std::to_string(every) + ", wanted 2 or more");
}

/// For data sets where 0, nothing held out, is allowed too. Throws SettingsError (1, or negative).
inline void check_optional_hold_out(int64_t every) {
  if (every < 0 || every == 1) {
    throw SettingsError("hold_out is " + std::to_string(every) + ", wanted 0 for none, or 2 or more");
  }
}

}  // namespace tandem::data
