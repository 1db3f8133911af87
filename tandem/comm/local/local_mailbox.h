#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

namespace tandem::comm {

/// Messages between thread-ranks. The content is handed over, not copied. Does not use torch.
///
/// Waiting threads spin briefly, then sleep. Messages with the same sender, receiver and tag arrive in the order in
/// which they were posted. Functions that wait throw LocalFailure if nothing comes within the timeout, or after
/// abort().
class LocalMailbox {
 public:
  struct Message {
    std::shared_ptr<void> content;
    int from = 0;
    bool accepted = false;  // guarded by the mailbox
  };
  using Handle = std::shared_ptr<Message>;
  static constexpr int kAnySource = -1;

  LocalMailbox(int size, std::chrono::milliseconds timeout);

  /// Never waits.
  Handle post(int from, int to, int tag, std::shared_ptr<void> content);

  /// Waits for the next message from `from`, or from any rank (kAnySource).
  Handle take(int from, int to, int tag);

  /// accept(): the receiver no longer needs the content. await_acceptance() waits for that.
  void accept(const Handle& message);
  void await_acceptance(const Handle& message, int to);

  void abort(const std::string& reason);

 private:
  using Key = std::tuple<int, int, int>;  // to, tag, from

  Handle find(int from, int to, int tag);
  template <class Condition>
  void wait_until(Condition condition, const std::string& what);

  void change();

  const std::chrono::milliseconds timeout_;
  const int spins_;
  std::mutex mutex_;
  std::atomic<uint64_t> changes_{0};
  std::condition_variable changed_;
  std::map<Key, std::deque<Handle>> boxes_;
  std::optional<std::string> abort_reason_;
};

}  // namespace tandem::comm
