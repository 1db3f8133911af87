#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <span>
#include <vector>

#include "tandem/comm/segments/arena.h"
#include "tandem/comm/segments/stage.h"

namespace tandem::comm {

/// Messages between the ranks of a Stage. A sender copies its message into memory that the receiver maps, and leaves a
/// note of it in its own box; nobody has to help it on. Does not use torch.
///
///   box of rank 0     notes to rank 1: ▪ ▪    arena of rank 0     [message] [message]
///                     notes to rank 2: ▪                          [message]
///
/// Messages with the same sender, receiver and tag arrive in the order in which they were posted. Any threads. Waiting
/// threads spin briefly, then sleep. Throws LocalFailure if nothing comes within the timeout (AwakeTimer), if the other
/// rank has left or its process has ended, or if there is no memory. Memory: of the messages that are under way at a
/// rank, the most that there ever were.
class SegmentMailbox : public std::enable_shared_from_this<SegmentMailbox> {
 public:
  /// Of each rank's box, which lies behind what its Stage needs of a segment.
  static int64_t box_bytes(int size);

  explicit SegmentMailbox(std::shared_ptr<Stage> stage);

  /// A message whose receiver may not have it yet. It must be waited for before its sender's process ends.
  class Posted {
   public:
    Posted(std::shared_ptr<SegmentMailbox> mailbox, int to, Arena::Piece piece)
        : mailbox_(std::move(mailbox)), to_(to), piece_(piece) {}
    ~Posted();
    Posted(const Posted&) = delete;
    Posted& operator=(const Posted&) = delete;

    /// Returns when the receiver has taken it.
    void wait();

   private:
    std::shared_ptr<SegmentMailbox> mailbox_;
    int to_;
    Arena::Piece piece_;
  };

  using Bytes = std::span<const std::byte>;

  /// Its bytes are those of `pieces`, one after the other. Waits only if very many messages are under way to one rank.
  std::shared_ptr<Posted> post(int to, int tag, std::initializer_list<Bytes> pieces);

  /// Waits for the next message, which `read` may read until it returns.
  void take(int from, int tag, const std::function<void(Bytes)>& read);

 private:
  struct Box;
  struct Notes;

  /// Where a message lies.
  struct Note {
    int32_t tag, descriptor;
    uint64_t key;
    int64_t segment_bytes, offset, bytes;
  };
  struct Attached {
    uint64_t key;
    std::shared_ptr<Segment> segment;
  };

  std::byte* box_memory(int rank) const;
  Box& box(int rank) const;
  Notes& notes(int from, int to) const;
  void signal(int rank);
  bool is_taken(const Arena::Piece& piece) const;
  void collect(int from);
  std::optional<Note> find(int from, int tag);
  std::byte* attached(int from, const Note& note);
  template <class Condition>
  void wait_until(int other, const Condition& condition, const std::string& what);

  const std::shared_ptr<Stage> stage_;
  const int spins_;
  std::mutex mutex_;  // of all below, and of the notes that this rank writes and reads
  Arena arena_;
  std::map<std::pair<int, int>, std::queue<Note>> waiting_;  // by sender and tag
  std::vector<std::vector<Attached>> arenas_;                // of the other ranks
};

}  // namespace tandem::comm
