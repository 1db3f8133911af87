#include "tests/device/delayed_streams.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "tandem/base/context.h"

namespace tandem::test {

namespace {

thread_local int64_t waits_here = 0;

}  // namespace

DelayedStreams& DelayedStreams::get() {
  static auto* streams = new DelayedStreams;  // used until the last tensor is freed
  return *streams;
}

DelayedStreams::~DelayedStreams() { stop_thread(); }

void DelayedStreams::stop_thread() {
  is_ending_ = true;
  if (thread_.joinable()) thread_.join();
  is_ending_ = false;
}

void DelayedStreams::choose(Delays delays) {
  stop_thread();
  const std::lock_guard lock(mutex_);
  for (auto& [_, queue] : queues_) {
    while (!queue.pieces.empty()) run_next(queue);
  }
  delays_ = delays;
  fault_ = Fault::none;
  on_ranks_.clear();
  num_waits_ = num_events_ = num_works_ = 0;
  findings_.clear();
  if (delays == Delays::random) thread_ = std::thread([this] { run_now_and_then(); });
}

void DelayedStreams::plant(Fault fault, int64_t at) {
  const std::lock_guard lock(mutex_);
  fault_ = fault;
  at_ = at;
  num_events_ = num_works_ = 0;
}

void DelayedStreams::plant_on(int rank, Fault fault, int64_t at) {
  const std::lock_guard lock(mutex_);
  on_ranks_[rank] = {fault, at};
}

void DelayedStreams::count_wait() {
  ++num_waits_;
  ++waits_here;
}

int64_t DelayedStreams::num_waits_here() { return waits_here; }

int64_t DelayedStreams::num_events_on(int rank) {
  const std::lock_guard lock(mutex_);
  return on_ranks_[rank].num_events;
}

/// `number`: of this kind, in the process.
bool DelayedStreams::is_planted(Fault fault, int64_t number) {
  auto& own = on_ranks_[current_context().rank];
  auto& count = fault == Fault::missing_wait ? own.num_events : own.num_works;
  const bool is_own = own.fault == fault && (own.at < 0 || own.at == count);
  ++count;
  return is_own || (fault_ == fault && (at_ < 0 || at_ == number));
}

void DelayedStreams::push(c10::Stream stream, Work work, bool fills) {
  const std::lock_guard lock(mutex_);
  if (!fills && is_planted(Fault::wrong_stream, num_works_++)) {
    stream = c10::Stream(c10::Stream::UNSAFE, stream.device(), stream.id() + 1000);
  }
  auto& queue = queues_[stream];
  queue.pieces.push_back({{}, std::move(work)});
  ++queue.pushed;
  if (delays_ == Delays::none) run_until({stream, queue.pushed});
}

DelayedStreams::Mark DelayedStreams::mark(c10::Stream stream) {
  const std::lock_guard lock(mutex_);
  return {stream, queues_[stream].pushed};
}

void DelayedStreams::wait(c10::Stream stream, const Mark& mark) {
  const std::lock_guard lock(mutex_);
  if (stream == mark.stream || is_planted(Fault::missing_wait, num_events_++)) return;
  auto& queue = queues_[stream];
  queue.pieces.push_back({{mark}, {}});
  ++queue.pushed;
}

bool DelayedStreams::is_done(const Mark& mark) {
  const std::lock_guard lock(mutex_);
  auto& queue = queues_[mark.stream];
  // Who asks again and again waits.
  if (queue.done < mark.position) run_next(queue);
  return queue.done >= mark.position;
}

void DelayedStreams::run_until(const Mark& mark) {
  const std::lock_guard lock(mutex_);
  auto& queue = queues_[mark.stream];
  while (queue.done < mark.position) run_next(queue);
}

void DelayedStreams::run_all(c10::DeviceIndex device) {
  const std::lock_guard lock(mutex_);
  for (auto& [stream, queue] : queues_) {
    while (stream.device_index() == device && !queue.pieces.empty()) run_next(queue);
  }
}

/// An event is always of work that was given earlier, so this ends.
void DelayedStreams::run_next(Queue& queue) {
  const auto piece = std::move(queue.pieces.front());
  for (const auto& mark : piece.after) run_until(mark);
  queue.pieces.pop_front();
  if (piece.work) piece.work();
  ++queue.done;
}

void DelayedStreams::run_now_and_then() {
  std::mt19937 random(2);
  while (!is_ending_) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    const std::lock_guard lock(mutex_);
    if (queues_.empty()) continue;
    auto& queue = std::next(queues_.begin(), static_cast<int64_t>(random() % queues_.size()))->second;
    for (auto left = random() % 8; left > 0 && !queue.pieces.empty(); --left) run_next(queue);
  }
}

void DelayedStreams::note(std::string finding) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(findings_, finding) == findings_.end()) findings_.push_back(std::move(finding));
}

std::vector<std::string> DelayedStreams::take_findings() {
  const std::lock_guard lock(mutex_);
  return std::exchange(findings_, {});
}

}  // namespace tandem::test
