#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tandem/job/job.h"

namespace tandem::job {

/// The peak of a rank.
struct RankPeak {
  int64_t bytes = 0;
  std::string block;     // in which it is
  bool in_test = false;  // in no block, but in a test
};

/// Peaks of all ranks, given the classes of each.
using PeaksOf = std::function<std::vector<RankPeak>(const std::vector<int64_t>& counts)>;

/// The split of so many classes under memory.limit: in proportion to the classes for which the limits leave room, such
/// that the peak of each rank is within its limit. Throws SettingsError, which names the rank and the block that need
/// most above their limit, if there is none; without asking for peaks if by `about`, which tells them approximately,
/// the job is far from fitting. A head that is whole on each rank is not split: the limits are only checked.
std::vector<int64_t> fit_counts(const Job& job, int64_t classes, const PeaksOf& about, const PeaksOf& peaks_of);

/// The largest number of classes of each rank within memory.limit, looked for from so many of all ranks on. For heads
/// that are split.
std::vector<int64_t> largest_counts(const Job& job, int64_t classes, const PeaksOf& peaks_of);

/// "5,226 5,226 5,225"; equal counts of more than 8 ranks are grouped: "1,250,000 x 64 1,249,999 x 64".
std::string counts_text(const std::vector<int64_t>& counts);

}  // namespace tandem::job
