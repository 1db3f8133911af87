#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tandem::cli {

/// Seconds of one side of a benchmark, of each round.
using Rounds = std::vector<double>;

/// Median over the rounds of the times that one side takes, divided by those of the other.
double ratio_of_rounds(const Rounds& one, const Rounds& other);

/// By how much one side takes longer, round by round.
Rounds difference_of_rounds(const Rounds& one, const Rounds& other);

/// "12.3"; a dash for none.
std::string in_milliseconds(std::optional<double> seconds);

/// Null for none.
nlohmann::json number_or_null(std::optional<double> number);

}  // namespace tandem::cli
