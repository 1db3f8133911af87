#include "tandem/comm/local/call_terms.h"

#include <cstring>

namespace tandem::comm {

std::string disagreement(int size, const std::function<const CallTerms&(int rank)>& terms,
                         const std::function<std::string(int rank)>& words) {
  const auto words_of = [&](int rank) { return "rank " + std::to_string(rank) + " calls " + words(rank); };
  const auto& first = terms(0);
  for (int rank = 1; rank < size; ++rank) {
    const auto& other = terms(rank);
    if (std::strcmp(first.operation, other.operation) != 0 || first.signature != other.signature) {
      return words_of(0) + " and " + words_of(rank);
    }
  }
  if (first.given == nullptr) return "";
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      const int64_t given = terms(from).given[to], awaited = terms(to).awaited[from];
      if (given == awaited) continue;
      return words_of(from) + " and gives rank " + std::to_string(to) + " " + std::to_string(given) + " bytes, " +
             words_of(to) + " and awaits " + std::to_string(awaited);
    }
  }
  return "";
}

std::string missing_ranks(int size, const std::function<bool(int rank)>& is_there, int64_t milliseconds) {
  std::string missing;
  for (int rank = 0; rank < size; ++rank) {
    if (!is_there(rank)) missing += (missing.empty() ? "rank " : ", rank ") + std::to_string(rank);
  }
  return missing + " did not come within " + std::to_string(milliseconds) + " ms";
}

}  // namespace tandem::comm
