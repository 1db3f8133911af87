#include "tandem/base/suggest.h"

#include <algorithm>

namespace tandem {

int edit_distance(std::string_view a, std::string_view b) {
  // Rows of the dynamic programming table: two above, one above, this one.
  std::vector<int> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = above[j - 1] + (a[i - 1] != b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

std::vector<std::string> nearest(std::string_view text, std::span<const std::string_view> candidates, size_t limit) {
  constexpr size_t kLongest = 64;  // longer texts are not misspellings, and edit_distance() is quadratic
  if (text.size() > kLongest) return {};
  int best = kLongest;
  std::vector<std::string> found;
  for (const auto candidate : candidates) {
    const int distance = edit_distance(text, candidate);
    const int longer = static_cast<int>(std::max(text.size(), candidate.size()));
    if (distance > best || distance > std::max(1, longer / 3) || distance >= longer) continue;
    if (distance < best) found.clear();
    best = distance;
    const bool is_new = std::find(found.begin(), found.end(), candidate) == found.end();
    if (is_new && found.size() < limit) found.emplace_back(candidate);
  }
  return found;
}

std::string one_of(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

std::string did_you_mean(const std::vector<std::string>& candidates) {
  return candidates.empty() ? "" : "did you mean " + one_of(candidates) + "?";
}

}  // namespace tandem
