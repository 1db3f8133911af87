#pragma once
#include <mutex>
#include <optional>
#include <vector>

#include "tandem/memory/meter.h"

namespace tandem::memory::detail {

/// One allocation, as a book knows it.
struct Entry {
  int64_t bytes = 0;
  uint64_t number = 0;  // counted by the book from 1
  int block = 0;
  Category category = Category::other;
};

/// Bytes by category, in all and by block.
struct Sums {
  CategoryBytes all{};
  std::vector<CategoryBytes> blocks;  // by number
  int64_t bytes = 0;

  void change(int block, Category category, int64_t by);
  void move(const Entry& entry, Category category, int block);
};

/// The largest live sums of a book while it watches. While memory grows to a new peak nothing is copied: the live sums
/// are those of the peak. They are copied when the first of these bytes is freed.
///
///   live        1  2  3  2  3  4  5  4
///   at the peak =  =  =  3  3  =  =  5      "=": the live sums
class Peak {
 public:
  void begin(const Sums& live, uint64_t last);
  void end(const Sums& live);

  // What the book is about to do (leave), or has done.
  void grown(const Sums& live, uint64_t last);
  void leave(const Sums& live);
  void moved(const Entry& entry, Category category, int block);

  const Sums& sums(const Sums& live) const { return is_live_ ? live : sums_; }

 private:
  Sums sums_;
  int64_t bytes_ = 0;
  uint64_t last_ = 0;  // the newest entry at the peak
  bool is_watching_ = false, is_live_ = false;
};

Account account_of(const Sums& live, const Sums& at_peak);

/// What is live, by block. Bytes of no block must stand in block 0.
Sums sums_of(const Account& account);

/// The allocations of one rank: what is live, and what was live at the peaks. Thread-safe.
class Book {
 public:
  Book();

  /// Gives the entry its number. Returns false, and does nothing, if it `heeds_limit` and that does not leave room.
  bool add(Entry& entry, bool heeds_limit);
  void remove(const Entry& entry);

  /// Moves a live entry to another category and block; at the peaks too, if it was live then.
  void move(Entry& entry, Category category, int block);

  Account read() const;
  Account read(const Peak& peak) const;
  void reset_peak();

  /// Forgets the peak. Returns false, and does nothing, if something is live.
  bool reset_if_empty();

  void set_limit(std::optional<int64_t> bytes);
  std::optional<int64_t> limit() const;

  /// What was live when the limit refused the last entry.
  std::optional<Account> refused() const;

  /// A peak that the caller begins and ends.
  void watch(Peak& peak);
  void forget(Peak& peak);
  void begin(Peak& peak);
  void end(Peak& peak);

  /// Keeps the next events in `events`, up to the first of step `end_step` or later; null: keeps none.
  void record(std::vector<Event>* events, int64_t end_step);
  /// The number of those, while other threads may add to them.
  size_t recorded(const std::vector<Event>& events) const;

 private:
  void begin_peak_anew();
  void note(Event::What what, const Entry& entry);

  mutable std::mutex mutex_;
  Sums live_;
  Peak peak_;
  std::vector<Peak*> peaks_;  // peak_, then those of watchers
  uint64_t last_ = 0;         // number of the newest entry
  std::optional<int64_t> limit_;
  std::optional<Account> refused_;
  std::vector<Event>* events_ = nullptr;
  int64_t end_step_ = 0;  // of events_
};

}  // namespace tandem::memory::detail
