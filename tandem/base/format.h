#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// Formats numbers for people, and parses them.

/// "512 B", "6.3 KiB", "163.0 MiB", "2.38 GiB".
std::string format_bytes(int64_t bytes);

/// A shorter form, for labels: "512 KiB", "1.5 GiB", "203 MiB".
std::string format_bytes_short(double bytes);

/// A fraction of 1 as a percentage: 0.98765 -> "98.77 %".
std::string format_percent(double part);

/// As printf writes it with this format; a dash for none.
std::string format_number(const char* format, std::optional<double> value);

/// Parses a number of bytes as users write it: "512", "64K", "1.5G", also "64 M" and "64MiB" (powers of 1024). Returns
/// nullopt if the text has another form or the number does not fit int64_t.
std::optional<int64_t> parse_bytes(std::string_view text);

/// A number with thousands separated: 1234567 -> "1,234,567".
std::string format_count(int64_t count);

}  // namespace tandem
