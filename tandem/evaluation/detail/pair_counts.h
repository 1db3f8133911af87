#pragma once
#include <cstdint>

namespace tandem::evaluation::detail {

/// Number of pairs that show the same person, and of pairs that show different ones.
struct PairCounts {
  int64_t same = 0, different = 0;

  int64_t& of(bool is_same) { return is_same ? same : different; }
  PairCounts operator-(const PairCounts& other) const { return {same - other.same, different - other.different}; }
  PairCounts& operator+=(const PairCounts& other) {
    same += other.same;
    different += other.different;
    return *this;
  }
  bool operator==(const PairCounts&) const = default;
};

}  // namespace tandem::evaluation::detail
