#pragma once
#include <string>
#include <string_view>

namespace tandem::report::detail {

/// Bytes as text (RFC 4648, section 4), for a file within a page.
std::string base64(std::string_view bytes);

}  // namespace tandem::report::detail
