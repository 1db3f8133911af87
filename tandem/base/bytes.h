#pragma once
#include <cstdint>
#include <string>

namespace tandem {

/// Bytes for a reader: "512 B", "6.3 K", "163.0 M", "2.38 G" (powers of 1024, three or four digits).
std::string format_bytes(int64_t bytes);

/// A number with thousands separated: 1234567 -> "1,234,567".
std::string format_count(int64_t count);

}  // namespace tandem
