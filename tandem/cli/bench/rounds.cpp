#include "tandem/cli/bench/rounds.h"

#include <nlohmann/json.hpp>

#include "tandem/base/format.h"
#include "tandem/base/median.h"

namespace tandem::cli {

double ratio_of_rounds(const Rounds& one, const Rounds& other) {
  Rounds all;
  for (size_t i = 0; i < other.size(); ++i) all.push_back(one[i] / other[i]);
  return median(all);
}

Rounds difference_of_rounds(const Rounds& one, const Rounds& other) {
  Rounds all;
  for (size_t i = 0; i < one.size(); ++i) all.push_back(one[i] - other[i]);
  return all;
}

std::string in_milliseconds(std::optional<double> seconds) {
  return format_number("%.1f", seconds ? std::optional(*seconds * 1e3) : std::nullopt);
}

nlohmann::json number_or_null(std::optional<double> number) {
  return number ? nlohmann::json(*number) : nlohmann::json();
}

}  // namespace tandem::cli
