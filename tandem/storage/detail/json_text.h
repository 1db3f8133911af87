#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace tandem::storage::detail {

/// JSON that nobody vouches for: an object, nested at most 8 deep, no key twice, no NUL, at most `max_keys` keys an
/// object. Throws DataError naming `file` and the place.
nlohmann::json parse_json(std::string_view text, std::string_view file, size_t max_keys = 1'000'000);

/// The same with keys in the order of the text; looking one up takes time in proportion to their number.
nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view file, size_t max_keys = 10'000);

}  // namespace tandem::storage::detail
