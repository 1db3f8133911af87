#include "tandem/comm/segments/stage.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "tandem/comm/local/local_exchange.h"
#include "tandem/comm/segments/futex.h"

namespace tandem::comm {
namespace {

constexpr int64_t kPage = 4096;
constexpr size_t kMostWords = 512;

int64_t rounded_up(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

template <size_t N>
void put(char (&target)[N], const std::string& text) {
  const auto length = std::min(text.size(), N - 1);
  std::memcpy(target, text.data(), length);
  target[length] = '\0';
}

}  // namespace

/// A zeroed segment is a valid one.
struct Stage::Head {
  alignas(64) std::atomic<uint32_t> meetings;  // to which this rank has come; others sleep on it
  alignas(64) std::atomic<uint32_t> sleepers;
  alignas(64) std::atomic<uint32_t> has_left;  // 0: no; 1: is writing the reason; 2: yes
  char reason[kMostWords];
};

/// What a rank says about a call, followed by the bytes that it gives to and awaits from each rank.
struct Stage::Card {
  char operation[32];
  uint64_t signature;
  uint64_t moves;  // 1: the sizes count
  char words[kMostWords];
};

namespace {

/// A fast rank may announce its next call while another still reads this one.
constexpr int kCards = 2;

}  // namespace

int64_t Stage::segment_bytes(int size) {
  const auto card = static_cast<int64_t>(sizeof(Card)) + 2 * size * static_cast<int64_t>(sizeof(int64_t));
  return rounded_up(static_cast<int64_t>(sizeof(Head)) + kCards * card, kPage) + kSlots * kSlotBytes;
}

Stage::Stage(int rank, std::vector<Member> members, std::chrono::milliseconds timeout)
    : rank_(rank),
      timeout_(timeout),
      spins_(spins_for(static_cast<int>(members.size()))),
      members_(std::move(members)) {}

Stage::~Stage() { leave("rank " + std::to_string(rank_) + " has left"); }

Stage::Head& Stage::head(int rank) const {
  return *std::launder(reinterpret_cast<Head*>(members_[rank].segment->data()));
}

Stage::Card& Stage::card(int rank) const {
  const auto bytes = sizeof(Card) + 2 * members_.size() * sizeof(int64_t);
  auto* data = members_[rank].segment->data() + sizeof(Head) + static_cast<size_t>(calls_ % kCards) * bytes;
  return *std::launder(reinterpret_cast<Card*>(data));
}

int64_t* Stage::sizes_of(int rank) const { return reinterpret_cast<int64_t*>(&card(rank) + 1); }

std::byte* Stage::slot(int rank, int64_t turn) const {
  const auto before = segment_bytes(size()) - kSlots * kSlotBytes;
  return members_[rank].segment->data() + before + (turns_ + turn) % kSlots * kSlotBytes;
}

void Stage::announce(const CallTerms& terms) {
  check_own();
  auto& own = card(rank_);
  put(own.operation, terms.operation);
  own.signature = terms.signature;
  own.moves = terms.given != nullptr;
  if (terms.given == nullptr) return;
  std::copy_n(terms.given, size(), sizes_of(rank_));
  std::copy_n(terms.awaited, size(), sizes_of(rank_) + size());
}

CallTerms Stage::terms_of(int rank) const {
  const auto& its = card(rank);
  const int64_t* sizes = its.moves != 0 ? sizes_of(rank) : nullptr;
  return {its.operation, its.signature, sizes, sizes == nullptr ? nullptr : sizes + size()};
}

void Stage::check_agreement(const std::function<std::string()>& words) {
  std::vector<CallTerms> terms;
  for (int rank = 0; rank < size(); ++rank) terms.push_back(terms_of(rank));
  const auto terms_at = [&](int rank) -> const CallTerms& { return terms[rank]; };
  if (disagreement(size(), terms_at, [](int) { return std::string(); }).empty()) return;
  put(card(rank_).words, words());  // all ranks come here
  meet();
  const auto fault = disagreement(size(), terms_at, [&](int rank) { return std::string(card(rank).words); });
  throw LocalFailure{LocalFailure::Kind::mismatch, fault};
}

int64_t Stage::most_given() const {
  int64_t most = 0;
  for (int from = 0; from < size(); ++from) {
    for (int to = 0; to < size(); ++to) most = std::max(most, from == to ? 0 : sizes_of(from)[to]);
  }
  return most;
}

void Stage::end(int64_t turns) {
  turns_ += turns;
  ++calls_;
}

bool Stage::is_there(int rank) const {
  return static_cast<int32_t>(head(rank).meetings.load(std::memory_order_acquire) - meetings_) >= 0;
}

void Stage::meet() {
  check_own();
  auto& own = head(rank_);
  own.meetings.store(++meetings_);
  if (own.sleepers.load() > 0) futex_wake(own.meetings);
  AwakeTimer timer(timeout_);
  for (int step = 1; step < size(); ++step) await((rank_ + step) % size(), timer);
}

/// A sleeping rank looks at each glance whether the others still live.
void Stage::await(int rank, AwakeTimer& timer) {
  for (int i = 0; i < spins_; ++i) {
    if (is_there(rank)) return;
    relax();
  }
  for (;;) {
    sleep_until_change(rank, timer.glance());
    if (is_there(rank)) return;
    check_others();
    if (timer.has_ended()) fail_late();
  }
}

void Stage::sleep_until_change(int rank, std::chrono::milliseconds most) const {
  auto& its = head(rank);
  its.sleepers.fetch_add(1);
  const auto seen = its.meetings.load();
  if (!is_there(rank) && its.has_left.load() == 0) futex_wait(its.meetings, seen, most);
  its.sleepers.fetch_sub(1);
}

/// Throws if this rank has left: the others would take what it writes for the call in which they still are.
void Stage::check_own() const {
  const auto& own = head(rank_);
  if (own.has_left.load() == 0) return;
  while (own.has_left.load() == 1) relax();  // another thread writes the reason
  throw LocalFailure{LocalFailure::Kind::aborted, own.reason};
}

std::optional<std::string> Stage::why_gone(int rank) const {
  check_own();
  if (head(rank).has_left.load() == 2) return head(rank).reason;
  if (members_[rank].watch.has_ended()) return "the process of rank " + std::to_string(rank) + " has ended";
  return std::nullopt;
}

/// Throws if a rank that has not come will never come. A rank that has left after this meeting has come.
void Stage::check_others() const {
  for (int rank = 0; rank < size(); ++rank) {
    const auto gone = why_gone(rank);
    if (gone && (rank == rank_ || !is_there(rank))) throw LocalFailure{LocalFailure::Kind::aborted, *gone};
  }
}

void Stage::fail_late() {
  const auto text = missing_ranks(
      size(), [&](int rank) { return is_there(rank); }, timeout_.count());
  throw LocalFailure{LocalFailure::Kind::timed_out, text};
}

void Stage::leave(const std::string& reason) {
  auto& own = head(rank_);
  uint32_t before = 0;
  if (!own.has_left.compare_exchange_strong(before, 1)) return;
  put(own.reason, reason);
  own.has_left.store(2);
  futex_wake(own.meetings);
}

}  // namespace tandem::comm
