#pragma once
#include <string>
#include <string_view>

namespace tandem::train {

/// 'text' for an error of one line: control characters and bytes that are not UTF-8 as \xNN, cut at 120 bytes.
std::string quote(std::string_view text);

/// True for well-formed UTF-8 (no overlong form, no surrogate).
bool is_utf8(std::string_view text);

}  // namespace tandem::train
