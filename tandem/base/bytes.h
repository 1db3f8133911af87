#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

/// Bytes for a reader: "512 B", "6.3 K", "163.0 M", "2.38 G" (powers of 1024, three or four digits).
std::string format_bytes(int64_t bytes);

/// Bytes from a user: "512", "64K", "1.5G", also "64 M" and "64MiB" (powers of 1024). Nothing when it is not that, or
/// does not fit.
std::optional<int64_t> parse_bytes(std::string_view text);

/// A number with thousands separated: 1234567 -> "1,234,567".
std::string format_count(int64_t count);

}  // namespace tandem
