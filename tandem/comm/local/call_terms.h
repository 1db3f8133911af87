#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace tandem::comm {

/// What the ranks that make a call together must agree on.
struct CallTerms {
  const char* operation = "";
  uint64_t signature = 0;            // must be equal on all ranks: reduction, type, sizes, root
  const int64_t* given = nullptr;    // if data moves: the bytes for each rank, in rank order
  const int64_t* awaited = nullptr;  // and the bytes that this rank expects from each rank
};

/// Returns "" if the calls of `size` ranks agree; else what the first two do that differ, the same text on all ranks.
/// `words(rank)`: "all_reduce of Float [2, 3] at head.cpp:41".
std::string disagreement(int size, const std::function<const CallTerms&(int rank)>& terms,
                         const std::function<std::string(int rank)>& words);

/// "rank 1, rank 3 did not come within 2000 ms". `is_there(rank)`: whether the rank has come.
std::string missing_ranks(int size, const std::function<bool(int rank)>& is_there, int64_t milliseconds);

}  // namespace tandem::comm
