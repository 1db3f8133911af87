#include "tandem/comm/local/local_mailbox.h"

#include "tandem/comm/local/awake_timer.h"
#include "tandem/comm/local/local_exchange.h"

namespace tandem::comm {

LocalMailbox::LocalMailbox(int size, std::chrono::milliseconds timeout) : timeout_(timeout), spins_(spins_for(size)) {}

/// Wakes waiting threads, so that they check their conditions again.
void LocalMailbox::change() {
  changes_.fetch_add(1, std::memory_order_release);
  changed_.notify_all();
}

LocalMailbox::Handle LocalMailbox::post(int from, int to, int tag, std::shared_ptr<void> content) {
  auto message = std::make_shared<Message>();
  message->content = std::move(content);
  message->from = from;
  {
    const std::lock_guard lock(mutex_);
    boxes_[{to, tag, from}].push_back(message);
  }
  change();
  return message;
}

LocalMailbox::Handle LocalMailbox::find(int from, int to, int tag) {
  for (auto box = boxes_.lower_bound({to, tag, from}); box != boxes_.end(); ++box) {
    const auto& [box_to, box_tag, box_from] = box->first;
    if (box_to != to || box_tag != tag || (from != kAnySource && box_from != from)) return nullptr;
    if (box->second.empty()) continue;
    auto message = box->second.front();
    box->second.pop_front();
    if (box->second.empty()) boxes_.erase(box);
    return message;
  }
  return nullptr;
}

template <class Condition>
void LocalMailbox::wait_until(Condition condition, const std::string& what) {
  std::unique_lock lock(mutex_);
  bool is_met = false;
  const auto is_over = [&] { return (is_met = is_met || condition()) || abort_reason_.has_value(); };
  for (int spins = 0; spins < spins_ && !is_over();) {
    const auto seen = changes_.load(std::memory_order_acquire);
    lock.unlock();
    while (spins++ < spins_ && changes_.load(std::memory_order_acquire) == seen) relax();
    lock.lock();
  }
  AwakeTimer timer(timeout_);
  while (!changed_.wait_for(lock, timer.glance(), is_over) && !timer.has_ended()) {
  }
  if (is_over() && is_met) return;
  if (abort_reason_) throw LocalFailure{LocalFailure::Kind::aborted, *abort_reason_};
  throw LocalFailure{LocalFailure::Kind::timed_out, what + " within " + std::to_string(timeout_.count()) + " ms"};
}

LocalMailbox::Handle LocalMailbox::take(int from, int to, int tag) {
  Handle message;
  const auto sender = from == kAnySource ? "any rank" : "rank " + std::to_string(from);
  wait_until([&] { return (message = find(from, to, tag)) != nullptr; }, sender + " has sent nothing");
  return message;
}

void LocalMailbox::accept(const Handle& message) {
  {
    const std::lock_guard lock(mutex_);
    message->accepted = true;
  }
  change();
}

void LocalMailbox::await_acceptance(const Handle& message, int to) {
  wait_until([&] { return message->accepted; }, "rank " + std::to_string(to) + " has received nothing");
}

void LocalMailbox::abort(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!abort_reason_) abort_reason_ = reason;
  }
  change();
}

}  // namespace tandem::comm
