#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

/// The number of insertions, deletions, replacements and swaps of neighbouring bytes that turn one text into the other.
int edit_distance(std::string_view a, std::string_view b);

/// Returns the candidates nearest to `text` (all that tie, at most `limit`). A candidate is too far if more than a
/// third of the longer text's bytes differ; one difference is always allowed. A candidate that has nothing in common
/// with `text` is always too far. Empty if no candidate is near enough or `text` is longer than 64 bytes.
std::vector<std::string> nearest(std::string_view text, std::span<const std::string_view> candidates, size_t limit = 3);

/// "did you mean a, b or c?"; "" for none.
std::string did_you_mean(const std::vector<std::string>& candidates);

/// "a", "a or b", "a, b or c".
std::string one_of(const std::vector<std::string>& words);

}  // namespace tandem
