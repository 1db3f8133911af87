#include "tandem/job/class_split.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/comm/split.h"
#include "tandem/job/parts.h"

namespace tandem::job {
namespace {

constexpr int64_t kMany = int64_t{1} << 40;  // classes

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

struct Room {
  std::vector<int64_t> most;   // classes of each rank
  std::vector<int64_t> least;  // bytes that each rank needs without any class; 0: they do not matter

  /// A rank whose limit is too small without any class.
  std::optional<size_t> rank_without(const std::vector<int64_t>& limits) const {
    for (size_t rank = 0; rank < most.size(); ++rank) {
      if (most[rank] == 0 && least[rank] > limits[rank]) return rank;
    }
    return std::nullopt;
  }
};

/// Looks for the largest number of classes of one rank that fits, up to `enough`, by peaks that rise with it.
class RoomSearch {
 public:
  RoomSearch(int64_t limit, int64_t enough, int64_t start)
      : limit_(limit), fails_(enough + 1), next_(std::min(start, enough)) {}

  bool is_done() const { return fails_ - fits_ == 1; }
  int64_t next() const { return is_done() ? std::max<int64_t>(fits_, 0) : next_; }
  int64_t least() const { return least_; }

  void tried(int64_t bytes) {
    if (is_done()) return;
    const int64_t classes = next_, before = classes_, bytes_before = bytes_;
    classes_ = classes;
    bytes_ = bytes;
    if (classes == 0) least_ = bytes;
    (bytes <= limit_ ? fits_ : fails_) = classes;
    if (is_done()) return;
    next_ = std::clamp(guess(before, bytes_before), fits_ + 1, fails_ - 1);
  }

 private:
  /// In line with the last two numbers tried; now and then halfway, where the line leads nowhere.
  int64_t guess(int64_t before, int64_t bytes_before) {
    constexpr int kGuesses = 4;
    if (before < 0) return bytes_ <= limit_ ? classes_ + std::max<int64_t>(classes_ / 8, 1) : classes_ / 2;
    if (++attempts_ % kGuesses == 0 || bytes_ == bytes_before) {
      return std::min(fits_ + (fails_ - fits_) / 2, 2 * std::max<int64_t>(fits_, 1));
    }
    const auto slope = static_cast<double>(bytes_ - bytes_before) / static_cast<double>(classes_ - before);
    const auto more = std::floor(static_cast<double>(limit_ - bytes_) / slope);
    return classes_ + static_cast<int64_t>(std::clamp(more, -static_cast<double>(kMany), static_cast<double>(kMany)));
  }

  int64_t limit_, fits_ = -1, fails_, next_, least_ = 0;
  int64_t classes_ = -1, bytes_ = 0;  // of the last try
  int attempts_ = 0;
};

/// Of the ranks of a job that has limits.
class Split {
 public:
  Split(const Job& job, int64_t classes)
      : job_(job), limits_(job.memory.limits), even_(even_counts(job, classes, job.parallel.ranks)) {}

  std::vector<int64_t> fit(const PeaksOf& about, const PeaksOf& peaks_of) const {
    if (job_.head.form->is_whole) return whole(peaks_of);
    const auto classes = comm::sum_of(even_);
    auto start = even_;
    if (!job_.memory.recomputes()) {  // which may make room
      const auto room = room_by(about, with_error(), kMany, even_);
      if (comm::sum_of(room.most) < classes) {
        refuse(room_by(about, limits_, kMany, even_), classes, worst_need(even_, about(even_)), "about ");
      }
      start = room.most;
    }
    auto counts = split_by(start, classes);
    auto peaks = peaks_of(counts);
    if (all_fit(peaks)) return counts;
    const auto room = room_by(peaks_of, limits_, classes, counts);
    if (comm::sum_of(room.most) < classes || room.rank_without(limits_)) {
      refuse(room, classes, worst_need(counts, peaks), "");
    }
    counts = split_by(room.most, classes);
    peaks = peaks_of(counts);
    if (all_fit(peaks)) return counts;
    throw SettingsError("memory.limit leaves no room for the classes of all ranks" + worst_need(counts, peaks).text());
  }

  std::vector<int64_t> largest(const PeaksOf& peaks_of) const { return room_by(peaks_of, limits_, kMany, even_).most; }

 private:
  /// By the peaks of ranks that have as many classes as they may. `start`: classes of each rank, about as many as fit.
  Room room_by(const PeaksOf& peaks_of, const std::vector<int64_t>& limits, int64_t enough,
               const std::vector<int64_t>& start) const {
    constexpr int kAttempts = 64;  // more than the bits of a count
    const auto holders = class_holders(job_, job_.parallel.ranks);
    std::vector<RoomSearch> searches;
    for (size_t rank = 0; rank < limits.size(); ++rank) {
      const bool takes_classes = std::ranges::find(holders, static_cast<int>(rank)) != holders.end();
      searches.emplace_back(limits[rank], takes_classes ? enough : 0, start[rank]);
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
      for (size_t rank = 0; rank < peaks.size(); ++rank) searches[rank].tried(peaks[rank].bytes);
    }
    room.least = take([](const auto& search) { return search.least(); });
    return room;
  }

  /// With what approximate bytes may be too many.
  std::vector<int64_t> with_error() const {
    constexpr double kError = 0.04;
    auto limits = limits_;
    for (auto& limit : limits) limit += std::llround(kError * static_cast<double>(limit));
    return limits;
  }

  static std::vector<int64_t> split_by(const std::vector<int64_t>& most, int64_t classes) {
    return comm::split_by_weight(classes, std::vector<double>(most.begin(), most.end()));
  }

  bool all_fit(const std::vector<RankPeak>& peaks) const {
    for (size_t rank = 0; rank < peaks.size(); ++rank) {
      if (peaks[rank].bytes > limits_[rank]) return false;
    }
    return true;
  }

  /// Of the rank that lacks most.
  Need worst_need(const std::vector<int64_t>& counts, const std::vector<RankPeak>& peaks) const {
    size_t worst = 0;
    const auto lack = [&](size_t rank) { return peaks[rank].bytes - limits_[rank]; };
    for (size_t rank = 1; rank < peaks.size(); ++rank) worst = lack(rank) > lack(worst) ? rank : worst;
    return {static_cast<int>(worst), counts[worst], peaks[worst]};
  }

  std::string limit_text(size_t rank) const {
    return "memory.limit of rank " + std::to_string(rank) + " is " + bytes_text(limits_[rank]);
  }

  /// `about`: "about " if the numbers are approximate.
  [[noreturn]] void refuse(const Room& room, int64_t classes, const Need& need, const std::string& about) const {
    if (const auto rank = room.rank_without(limits_)) {
      throw SettingsError(limit_text(*rank) + ", wanted at least " + about + bytes_text(room.least[*rank]) +
                              ", which the job needs without any class" + need.text(about),
                          "give more memory, or make " + need.batch() + " smaller");
    }
    throw SettingsError("head.classes is " + std::to_string(classes) + ", wanted at most " + about +
                            std::to_string(comm::sum_of(room.most)) + " with this memory.limit" + need.text(about),
                        "add ranks or memory, or see the forms of tandem plan");
  }

  /// Nothing can be moved between ranks that hold all classes each.
  std::vector<int64_t> whole(const PeaksOf& peaks_of) const {
    const auto peaks = peaks_of(even_);
    if (all_fit(peaks)) return even_;
    const auto need = worst_need(std::vector<int64_t>(peaks.size(), comm::sum_of(even_)), peaks);
    throw SettingsError(limit_text(static_cast<size_t>(need.rank)) + ", wanted more" + need.text(),
                        job_.parallel.is_async ? "lower ps.staleness, use ps.mode=sync, or give more memory"
                        : job_.search          ? "use recompute=sqrt, lower train.batch, or give more memory"
                                               : "split the classes with head.parallel=sharded, or give more memory");
  }

  const Job& job_;
  const std::vector<int64_t>& limits_;
  const std::vector<int64_t> even_;
};

}  // namespace

std::vector<int64_t> fit_counts(const Job& job, int64_t classes, const PeaksOf& about, const PeaksOf& peaks_of) {
  return Split(job, classes).fit(about, peaks_of);
}

std::vector<int64_t> largest_counts(const Job& job, int64_t classes, const PeaksOf& peaks_of) {
  return Split(job, classes).largest(peaks_of);
}

std::string counts_text(const std::vector<int64_t>& counts) {
  constexpr size_t kFew = 8;
  std::string text;
  for (size_t i = 0, end; i < counts.size(); i = end) {
    end = i + 1;
    while (counts.size() > kFew && end < counts.size() && counts[end] == counts[i]) ++end;
    text += (text.empty() ? "" : " ") + format_count(counts[i]);
    if (end - i > 1) text += " x " + std::to_string(end - i);
  }
  return text;
}

}  // namespace tandem::job
