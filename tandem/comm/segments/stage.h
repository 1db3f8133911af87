#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/comm/local/awake_timer.h"
#include "tandem/comm/local/call_terms.h"
#include "tandem/comm/segments/segment.h"

namespace tandem::comm {

/// Where the ranks of a group meet that are processes of one host. Each rank has a segment, which all others map: its
/// count of meetings, what it says about the current call, and three slots for data. Does not use torch.
///
///   turn       0       1       2       3          a rank fills its slot of turn t before meeting t,
///   rank 0   slot 0  slot 1  slot 2  slot 0       and reads the others' until meeting t + 2
///   rank 1   slot 0  slot 1  slot 2  slot 0
///               meet    meet    meet
///
/// One thread of a rank at a time. Waiting ranks spin briefly, then sleep. Throws LocalFailure if the ranks' calls
/// differ, if a rank has left or its process has ended, or if one stays away longer than the timeout (AwakeTimer). A
/// rank that has left makes no further call, so that what it has written stays what it was.
class Stage {
 public:
  static constexpr int kSlots = 3;
  static constexpr int64_t kSlotBytes = 1 << 20;

  /// Of each rank's segment, which may be larger.
  static int64_t segment_bytes(int size);

  struct Member {
    std::shared_ptr<Segment> segment;
    ProcessWatch watch;
  };

  /// `members`: of all ranks, this one among them.
  Stage(int rank, std::vector<Member> members, std::chrono::milliseconds timeout);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  const Segment& segment(int rank) const { return *members_[rank].segment; }
  std::chrono::milliseconds timeout() const { return timeout_; }

  /// Tells the others what this rank calls, before the call's first meeting. Must be the same on all ranks.
  void announce(const CallTerms& terms);

  /// Returns when all ranks have come.
  void meet();

  /// After the first meeting. `words`: describes this rank's call.
  void check_agreement(const std::function<std::string()>& words);

  /// The bytes of the largest block that a rank gives to another in this call. After the first meeting.
  int64_t most_given() const;

  /// The slot of `rank` for a turn of this call; 0 is the first.
  std::byte* slot(int rank, int64_t turn) const;

  /// Ends a call of `turns` turns.
  void end(int64_t turns);

  /// Why a rank will make no further call; nullopt: it has not left, and its process has not ended. Throws if this rank
  /// has left.
  std::optional<std::string> why_gone(int rank) const;

  /// Fails what this rank waits for, its later calls and, when they wait for it, the other ranks. The first reason is
  /// kept. Any thread.
  void leave(const std::string& reason);

 private:
  struct Head;
  struct Card;

  Head& head(int rank) const;
  Card& card(int rank) const;
  int64_t* sizes_of(int rank) const;
  CallTerms terms_of(int rank) const;
  bool is_there(int rank) const;
  void await(int rank, AwakeTimer& timer);
  void sleep_until_change(int rank, std::chrono::milliseconds most) const;
  void check_own() const;
  void check_others() const;
  [[noreturn]] void fail_late();

  const int rank_;
  const std::chrono::milliseconds timeout_;
  const int spins_;
  std::vector<Member> members_;
  uint32_t meetings_ = 0;
  int64_t turns_ = 0, calls_ = 0;
};

}  // namespace tandem::comm
