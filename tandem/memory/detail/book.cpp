#include "tandem/memory/detail/book.h"

#include <algorithm>
#include <chrono>

namespace tandem::memory::detail {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void Sums::change(int block, Category category, int64_t by) {
  const auto place = static_cast<size_t>(category), number = static_cast<size_t>(block);
  if (number >= blocks.size()) blocks.resize(number + 1);
  all[place] += by;
  blocks[number][place] += by;
  bytes += by;
}

void Sums::move(const Entry& entry, Category category, int block) {
  change(entry.block, entry.category, -entry.bytes);
  change(block, category, entry.bytes);
}

void Peak::begin(const Sums& live, uint64_t last) {
  is_watching_ = true;
  grown(live, last);
}

void Peak::end(const Sums& live) {
  leave(live);
  is_watching_ = false;
}

void Peak::grown(const Sums& live, uint64_t last) {
  if (!is_watching_ || live.bytes <= bytes_) return;
  bytes_ = live.bytes;
  last_ = last;
  is_live_ = true;
}

void Peak::leave(const Sums& live) {
  if (is_live_) sums_ = live;
  is_live_ = false;
}

void Peak::moved(const Entry& entry, Category category, int block) {
  // It is still live, so it was live at the peak if it is as old.
  if (!is_live_ && entry.number <= last_) sums_.move(entry, category, block);
}

Book::Book() : peaks_{&peak_} { begin_peak_anew(); }

bool Book::add(Entry& entry, bool heeds_limit) {
  const std::lock_guard lock(mutex_);
  if (heeds_limit && limit_ && entry.bytes > *limit_ - live_.bytes) {
    refused_ = account_of(live_, peak_.sums(live_));
    return false;
  }
  entry.number = ++last_;
  live_.change(entry.block, entry.category, entry.bytes);
  for (auto* peak : peaks_) peak->grown(live_, last_);
  note(Event::What::allocate, entry);
  return true;
}

void Book::remove(const Entry& entry) {
  const std::lock_guard lock(mutex_);
  for (auto* peak : peaks_) peak->leave(live_);
  live_.change(entry.block, entry.category, -entry.bytes);
  note(Event::What::free, entry);
}

void Book::move(Entry& entry, Category category, int block) {
  const std::lock_guard lock(mutex_);
  if (entry.category == category && entry.block == block) return;
  live_.move(entry, category, block);
  for (auto* peak : peaks_) peak->moved(entry, category, block);
  entry.category = category;
  entry.block = block;
  note(Event::What::move, entry);
}

Account Book::read() const { return read(peak_); }

Account Book::read(const Peak& peak) const {
  const std::lock_guard lock(mutex_);
  return account_of(live_, peak.sums(live_));
}

Account account_of(const Sums& live, const Sums& at_peak) {
  Account account{live.all, at_peak.all, {}};
  for (size_t i = 0; i < std::max(live.blocks.size(), at_peak.blocks.size()); ++i) {
    BlockBytes bytes{static_cast<int>(i)};
    if (i < live.blocks.size()) bytes.live = live.blocks[i];
    if (i < at_peak.blocks.size()) bytes.at_peak = at_peak.blocks[i];
    if (bytes.live != CategoryBytes{} || bytes.at_peak != CategoryBytes{}) account.blocks.push_back(bytes);
  }
  return account;
}

Sums sums_of(const Account& account) {
  Sums sums;
  for (const auto& block : account.blocks) {
    for (size_t i = 0; i < block.live.size(); ++i) sums.change(block.block, static_cast<Category>(i), block.live[i]);
  }
  return sums;
}

void Book::begin_peak_anew() {
  peak_ = {};
  peak_.begin(live_, last_);
}

void Book::reset_peak() {
  const std::lock_guard lock(mutex_);
  begin_peak_anew();
}

bool Book::reset_if_empty() {
  const std::lock_guard lock(mutex_);
  if (live_.bytes != 0) return false;
  begin_peak_anew();
  return true;
}

void Book::set_limit(std::optional<int64_t> bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = bytes;
  refused_.reset();
}

std::optional<Account> Book::refused() const {
  const std::lock_guard lock(mutex_);
  return refused_;
}

std::optional<int64_t> Book::limit() const {
  const std::lock_guard lock(mutex_);
  return limit_;
}

void Book::watch(Peak& peak) {
  const std::lock_guard lock(mutex_);
  peaks_.push_back(&peak);
}

void Book::forget(Peak& peak) {
  const std::lock_guard lock(mutex_);
  std::erase(peaks_, &peak);
}

void Book::begin(Peak& peak) {
  const std::lock_guard lock(mutex_);
  peak.begin(live_, last_);
}

void Book::end(Peak& peak) {
  const std::lock_guard lock(mutex_);
  peak.end(live_);
}

void Book::record(std::vector<Event>* events, int64_t end_step) {
  const std::lock_guard lock(mutex_);
  events_ = events;
  end_step_ = end_step;
}

size_t Book::recorded(const std::vector<Event>& events) const {
  const std::lock_guard lock(mutex_);
  return events.size();
}

void Book::note(Event::What what, const Entry& entry) {
  if (events_ == nullptr) return;
  const auto context = current_context();
  if (context.step >= end_step_) {
    events_ = nullptr;
    return;
  }
  events_->push_back({now_seconds(), entry.number, entry.bytes, live_.bytes, entry.block, context.step, entry.category,
                      context.phase, what});
}

}  // namespace tandem::memory::detail
