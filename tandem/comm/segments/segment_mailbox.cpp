#include "tandem/comm/segments/segment_mailbox.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "tandem/comm/local/awake_timer.h"
#include "tandem/comm/local/local_exchange.h"
#include "tandem/comm/segments/futex.h"

namespace tandem::comm {
namespace {

constexpr uint64_t kNotes = 1024;  // to one rank, that it has not read

/// Before each message.
struct alignas(64) Seal {
  std::atomic<uint32_t> is_taken;
};

Seal& seal_of(std::byte* message) { return *std::launder(reinterpret_cast<Seal*>(message)); }

std::string name_of(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

/// Zeroed memory is a valid one.
struct SegmentMailbox::Box {
  alignas(64) std::atomic<uint32_t> changes;  // that may concern this rank; it sleeps on it
  alignas(64) std::atomic<uint32_t> sleepers;
  int32_t process;
};

/// Of one rank for another.
struct SegmentMailbox::Notes {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  alignas(64) std::array<Note, kNotes> notes;
};

int64_t SegmentMailbox::box_bytes(int size) {
  return static_cast<int64_t>(sizeof(Box)) + size * static_cast<int64_t>(sizeof(Notes));
}

SegmentMailbox::SegmentMailbox(std::shared_ptr<Stage> stage)
    : stage_(std::move(stage)), spins_(spins_for(stage_->size())), arenas_(static_cast<size_t>(stage_->size())) {
  box(stage_->rank()).process = getpid();
}

std::byte* SegmentMailbox::box_memory(int rank) const {
  return stage_->segment(rank).data() + Stage::segment_bytes(stage_->size());
}

SegmentMailbox::Box& SegmentMailbox::box(int rank) const {
  return *std::launder(reinterpret_cast<Box*>(box_memory(rank)));
}

SegmentMailbox::Notes& SegmentMailbox::notes(int from, int to) const {
  return *std::launder(reinterpret_cast<Notes*>(box_memory(from) + sizeof(Box)) + to);
}

void SegmentMailbox::signal(int rank) {
  auto& its = box(rank);
  its.changes.fetch_add(1);
  if (its.sleepers.load() > 0) futex_wake(its.changes);
}

/// A rank that has left may have done what is waited for before it did.
template <class Condition>
void SegmentMailbox::wait_until(int other, const Condition& condition, const std::string& what) {
  for (int i = 0; i < spins_; ++i) {
    if (condition()) return;
    relax();
  }
  auto& own = box(stage_->rank());
  AwakeTimer timer(stage_->timeout());
  for (;;) {
    own.sleepers.fetch_add(1);
    const auto seen = own.changes.load();
    const bool is_met = condition();
    if (!is_met) futex_wait(own.changes, seen, timer.glance());
    own.sleepers.fetch_sub(1);
    if (is_met) return;
    const auto gone = stage_->why_gone(other);
    if (condition()) return;
    if (gone) throw LocalFailure{LocalFailure::Kind::aborted, *gone};
    if (timer.has_ended()) {
      throw LocalFailure{LocalFailure::Kind::timed_out,
                         what + " within " + std::to_string(stage_->timeout().count()) + " ms"};
    }
  }
}

std::shared_ptr<SegmentMailbox::Posted> SegmentMailbox::post(int to, int tag, std::initializer_list<Bytes> pieces) {
  int64_t bytes = 0;
  for (const auto& piece : pieces) bytes += static_cast<int64_t>(piece.size());
  Arena::Piece place;
  try {
    const std::lock_guard lock(mutex_);
    place = arena_.take(static_cast<int64_t>(sizeof(Seal)) + bytes);
  } catch (const std::system_error& error) {
    throw LocalFailure{LocalFailure::Kind::aborted, "no memory for a message: " + std::string(error.what())};
  }
  auto* message = place.data();
  seal_of(message).is_taken.store(0);
  auto* at = message + sizeof(Seal);
  for (const auto& piece : pieces) {
    if (!piece.empty()) std::memcpy(at, piece.data(), piece.size());
    at += piece.size();
  }
  auto& written = notes(stage_->rank(), to);
  const auto write = [&] {
    const std::lock_guard lock(mutex_);
    const auto count = written.written.load();
    if (count - written.read.load() == kNotes) return false;
    written.notes[count % kNotes] = {
        tag, place.segment->descriptor(), place.segment->key(), place.segment_bytes, place.offset, bytes};
    written.written.store(count + 1);
    return true;
  };
  wait_until(to, write, name_of(to) + " has read none of " + std::to_string(kNotes) + " messages");
  signal(to);
  return std::make_shared<Posted>(shared_from_this(), to, place);
}

bool SegmentMailbox::is_taken(const Arena::Piece& piece) const { return seal_of(piece.data()).is_taken.load() != 0; }

void SegmentMailbox::Posted::wait() {
  if (piece_.segment == nullptr) return;
  mailbox_->wait_until(
      to_, [&] { return mailbox_->is_taken(piece_); }, name_of(to_) + " has received nothing");
  const std::lock_guard lock(mailbox_->mutex_);
  mailbox_->arena_.give_back(std::exchange(piece_, {}));
}

/// Of one that nobody has waited for, the place stays taken if the receiver may still read it.
SegmentMailbox::Posted::~Posted() {
  if (piece_.segment == nullptr || !mailbox_->is_taken(piece_)) return;
  const std::lock_guard lock(mailbox_->mutex_);
  mailbox_->arena_.give_back(piece_);
}

/// Takes the notes out of a rank's box.
void SegmentMailbox::collect(int from) {
  auto& its = notes(from, stage_->rank());
  auto count = its.read.load();
  const bool was_full = its.written.load() - count == kNotes;
  while (count != its.written.load()) {
    const auto& note = its.notes[count % kNotes];
    waiting_[{from, note.tag}].push(note);
    its.read.store(++count);
  }
  if (was_full) signal(from);
}

std::optional<SegmentMailbox::Note> SegmentMailbox::find(int from, int tag) {
  const std::lock_guard lock(mutex_);
  collect(from);
  const auto found = waiting_.find({from, tag});
  if (found == waiting_.end()) return std::nullopt;
  const auto note = found->second.front();
  found->second.pop();
  if (found->second.empty()) waiting_.erase(found);
  return note;
}

std::byte* SegmentMailbox::attached(int from, const Note& note) {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, segment] : arenas_[from]) {
    if (key == note.key) return segment->data();
  }
  try {
    auto segment = Segment::attach(box(from).process, note.descriptor, note.segment_bytes, note.key);
    segment.close_descriptor();
    arenas_[from].push_back({note.key, std::make_shared<Segment>(std::move(segment))});
  } catch (const std::system_error& error) {
    throw LocalFailure{LocalFailure::Kind::aborted,
                       "a message of " + name_of(from) + " cannot be read: " + error.what()};
  }
  return arenas_[from].back().segment->data();
}

void SegmentMailbox::take(int from, int tag, const std::function<void(Bytes)>& read) {
  std::optional<Note> note;
  wait_until(
      from, [&] { return (note = find(from, tag)).has_value(); }, name_of(from) + " has sent nothing");
  auto* message = attached(from, *note) + note->offset;
  read({message + sizeof(Seal), static_cast<size_t>(note->bytes)});
  {
    // The sender's next message here may be for another thread of this rank. The seal alone orders the two, but by
    // way of the sender's mapping of the place; the mutex does it in this one, where a race detector sees it.
    const std::lock_guard lock(mutex_);
    seal_of(message).is_taken.store(1);
  }
  signal(from);
}

}  // namespace tandem::comm
