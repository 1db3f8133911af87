#include "tandem/job/class_split.h"

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/comm/split.h"

namespace tandem::job {
namespace {

bool all_fit(const MemoryPlan& plan, const std::vector<RankPeak>& peaks) {
  for (size_t rank = 0; rank < peaks.size(); ++rank) {
    if (peaks[rank].bytes > plan.limit(static_cast<int>(rank)).value()) return false;
  }
  return true;
}

std::string bytes_text(int64_t bytes) { return format_count(bytes) + " bytes"; }

/// What a rank with so many classes needs.
struct Need {
  int rank = 0;
  int64_t classes = 0;
  RankPeak peak;

  /// "; with 300 classes rank 1 needs 6,037,544 bytes at its peak, in block 'classifier'"
  std::string text(const std::string& about = "") const {
    return "; with " + format_count(classes) + " classes rank " + std::to_string(rank) + " needs " + about +
           bytes_text(peak.bytes) + " at its peak, in " + (peak.in_test ? "a test" : "block '" + peak.block + "'");
  }
  std::string batch() const { return peak.in_test ? "eval.batch" : "train.batch"; }
};

/// Of the rank that lacks most.
Need worst_need(const MemoryPlan& plan, const std::vector<int64_t>& counts, const std::vector<RankPeak>& peaks) {
  size_t worst = 0;
  const auto lack = [&](size_t rank) { return peaks[rank].bytes - plan.limit(static_cast<int>(rank)).value(); };
  for (size_t rank = 1; rank < peaks.size(); ++rank) worst = lack(rank) > lack(worst) ? rank : worst;
  return {static_cast<int>(worst), counts[worst], peaks[worst]};
}

std::vector<int64_t> most_classes(const MemoryPlan& plan, const std::vector<int64_t>& beside) {
  std::vector<int64_t> most;
  for (size_t rank = 0; rank < beside.size(); ++rank) {
    most.push_back(plan.most_classes(static_cast<int>(rank), beside[rank]).value());
  }
  return most;
}

std::vector<int64_t> split_by(const std::vector<int64_t>& most, int64_t classes) {
  return comm::split_by_weight(classes, std::vector<double>(most.begin(), most.end()));
}

/// What the plan's bytes may be wrong by, of each limit.
std::vector<int64_t> plans_error(const MemoryPlan& plan, size_t ranks) {
  constexpr double kError = 0.02;
  std::vector<int64_t> beside;
  for (size_t rank = 0; rank < ranks; ++rank) {
    beside.push_back(-std::llround(kError * static_cast<double>(plan.limit(static_cast<int>(rank)).value())));
  }
  return beside;
}

struct Room {
  std::vector<int64_t> most;   // classes of each rank
  std::vector<int64_t> least;  // bytes that each rank needs without any class
};

Room planned_room(const MemoryPlan& plan, size_t ranks) {
  Room room{most_classes(plan, std::vector<int64_t>(ranks)), {}};
  for (size_t rank = 0; rank < ranks; ++rank) room.least.push_back(total_of(plan.rank(static_cast<int>(rank), 0)));
  return room;
}

/// Looks for the largest number of classes of one rank, up to `enough`. The plan says how many more there may be than
/// the last number tried, or fewer; it errs by little, but may err by the same number again and again.
class RoomSearch {
 public:
  RoomSearch(const MemoryPlan& plan, int rank, int64_t enough)
      : plan_(plan),
        rank_(rank),
        limit_(plan.limit(rank).value()),
        fails_(enough + 1),
        next_(std::min(plan.most_classes(rank).value(), enough)) {}

  bool is_done() const { return fails_ - fits_ == 1; }
  int64_t next() const { return is_done() ? std::max<int64_t>(fits_, 0) : next_; }
  int64_t least() const { return least_; }

  void tried(int64_t bytes) {
    if (is_done()) return;
    const int64_t classes = next_;
    if (classes == 0) least_ = bytes;
    (bytes <= limit_ ? fits_ : fails_) = classes;
    const auto guess = plan_.most_classes(rank_, bytes - total_of(plan_.rank(rank_, classes))).value();
    const bool is_stuck = ++attempts_ > kGuesses;
    if (!is_done()) next_ = std::clamp(is_stuck ? fits_ + (fails_ - fits_) / 2 : guess, fits_ + 1, fails_ - 1);
  }

 private:
  static constexpr int kGuesses = 4;

  const MemoryPlan& plan_;
  int rank_;
  int64_t limit_, fits_ = -1, fails_, next_, least_ = 0;
  int attempts_ = 0;
};

/// By the peaks of ranks that have as many classes as they may.
Room exact_room(const MemoryPlan& plan, const PeaksOf& peaks_of, size_t ranks, int64_t enough) {
  constexpr int kAttempts = 64;  // twice the bits of a count
  std::vector<RoomSearch> searches;
  for (int rank = 0; rank < static_cast<int>(ranks); ++rank) {
    searches.emplace_back(plan, rank, plan.takes_classes(rank) ? enough : 0);
  }
  Room room;
  const auto take = [&](const auto& number_of) {
    std::vector<int64_t> numbers;
    for (const auto& search : searches) numbers.push_back(number_of(search));
    return numbers;
  };
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    room.most = take([](const auto& search) { return search.next(); });
    if (std::ranges::all_of(searches, [](const auto& search) { return search.is_done(); })) break;
    const auto peaks = peaks_of(room.most);
    for (size_t rank = 0; rank < ranks; ++rank) searches[rank].tried(peaks[rank].bytes);
  }
  room.least = take([](const auto& search) { return search.least(); });
  return room;
}

/// A rank whose limit is too small without any class.
std::optional<int> rank_without_room(const MemoryPlan& plan, const Room& room) {
  for (size_t i = 0; i < room.least.size(); ++i) {
    const int rank = static_cast<int>(i);
    if (room.most[i] == 0 && room.least[i] > plan.limit(rank).value()) return rank;
  }
  return std::nullopt;
}

/// `about`: "about " if the numbers are approximate.
[[noreturn]] void refuse(const MemoryPlan& plan, const Room& room, int64_t classes, const Need& need,
                         const std::string& about) {
  if (const auto rank = rank_without_room(plan, room)) {
    throw SettingsError("memory.limit of rank " + std::to_string(*rank) + " is " +
                            bytes_text(plan.limit(*rank).value()) + ", wanted at least " + about +
                            bytes_text(room.least[static_cast<size_t>(*rank)]) +
                            ", which the job needs without any class" + need.text(about),
                        "give more memory, or make " + need.batch() + " smaller");
  }
  throw SettingsError("head.classes is " + std::to_string(classes) + ", wanted at most " + about +
                          std::to_string(comm::sum_of(room.most)) + " with this memory.limit" + need.text(about),
                      "add ranks or memory, or see the forms of tandem plan");
}

/// Nothing can be moved between ranks that hold all classes each.
void check_whole(const MemoryPlan& plan, const std::vector<RankPeak>& peaks) {
  if (all_fit(plan, peaks)) return;
  const std::vector<int64_t> classes(peaks.size(), comm::sum_of(plan.even_counts()));
  const auto need = worst_need(plan, classes, peaks);
  throw SettingsError("memory.limit of rank " + std::to_string(need.rank) + " is " +
                          bytes_text(plan.limit(need.rank).value()) + ", wanted more" + need.text(),
                      plan.may_split() ? "split the classes with head.parallel=sharded, or give more memory"
                                       : "lower ps.staleness, use ps.mode=sync, or give more memory");
}

}  // namespace

std::vector<int64_t> fit_counts(const MemoryPlan& plan, const PeaksOf& peaks_of) {
  const auto even = plan.even_counts();
  if (plan.is_whole()) {
    check_whole(plan, peaks_of(even));
    return even;
  }
  const auto classes = comm::sum_of(even);
  auto most = most_classes(plan, plans_error(plan, even.size()));
  if (comm::sum_of(most) < classes && plan.is_rough()) most = even;
  if (comm::sum_of(most) < classes) {
    refuse(plan, planned_room(plan, even.size()), classes, worst_need(plan, even, plan.peaks(even)), "about ");
  }
  auto counts = split_by(most, classes);
  auto peaks = peaks_of(counts);
  if (all_fit(plan, peaks)) return counts;
  const auto room = exact_room(plan, peaks_of, even.size(), classes);
  if (comm::sum_of(room.most) < classes || rank_without_room(plan, room))
    refuse(plan, room, classes, worst_need(plan, counts, peaks), "");
  counts = split_by(room.most, classes);
  peaks = peaks_of(counts);
  if (all_fit(plan, peaks)) return counts;
  throw SettingsError("memory.limit leaves no room for the classes of all ranks" +
                      worst_need(plan, counts, peaks).text());
}

std::vector<int64_t> largest_counts(const MemoryPlan& plan, const PeaksOf& peaks_of) {
  constexpr int64_t kMany = int64_t{1} << 40;
  return exact_room(plan, peaks_of, plan.even_counts().size(), kMany).most;
}

}  // namespace tandem::job
