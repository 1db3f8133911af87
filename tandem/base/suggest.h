#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

/// Insertions, deletions, replacements and swaps of neighbours that turn one text into the other.
int edit_distance(std::string_view a, std::string_view b);

/// The candidates nearest to `text` (all that tie, at most `limit`), or none when even those are too far: more than a
/// third of the longer one's letters, but one is always near enough.
std::vector<std::string> nearest(std::string_view text, std::span<const std::string_view> candidates, size_t limit = 3);

/// "did you mean a, b or c?"; "" for none.
std::string did_you_mean(const std::vector<std::string>& candidates);

/// "a", "a or b", "a, b or c".
std::string one_of(const std::vector<std::string>& words);

}  // namespace tandem
