#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tandem::storage {

/// A value of a log line or of a manifest, and an ordered list of named values.
using Value = std::variant<bool, int64_t, double, std::string>;
using Fields = std::vector<std::pair<std::string, Value>>;

/// The value called `name`; nullptr if there is none.
const Value* find_value(const Fields& fields, std::string_view name);

/// The value called `name`. Throws DataError if it is missing or has another type: "best is missing, wanted a number".
int64_t whole_number(const Fields& fields, std::string_view name);
double number(const Fields& fields, std::string_view name);  // accepts whole numbers too
const std::string& text(const Fields& fields, std::string_view name);

}  // namespace tandem::storage
