#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace tandem::storage::detail {

/// Parses JSON from an untrusted source: an object, nested at most 8 deep, without duplicate keys or NUL, with at most
/// `max_keys` keys per object. Throws DataError naming `file` and the place.
nlohmann::json parse_json(std::string_view text, std::string_view file, size_t max_keys = 1'000'000);

/// Like parse_json(), but keeps the keys in the order of the text. Looking up a key takes time in proportion to their
/// number.
nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view file, size_t max_keys = 10'000);

}  // namespace tandem::storage::detail
