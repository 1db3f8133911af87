#pragma once
#include <span>
#include <string>
#include <string_view>

namespace tandem::job {

struct Job;

/// Two settings that a training cannot have together: a row of combinations(). The predicates read the flags by which
/// strategies, forms of the head, models, norms and hooks say what they can do. The error is told as
///
///   KEY is VALUE with OTHER, WHY: REMEDY
struct Combination {
  std::string_view key;    // of what is asked
  std::string_view other;  // the key of what cannot do it; with a "=" at its end it is told with its value
  bool (*is_asked)(const Job& job);
  bool (*cannot)(const Job& job);
  std::string_view why;
  std::string remedy;
};

/// All rows; of several that hold the first is told.
std::span<const Combination> combinations();

/// Throws SettingsError for the first row that holds and whose settings have an effect.
void check_combinations(const Job& job);

}  // namespace tandem::job
