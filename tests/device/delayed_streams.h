#pragma once
#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tandem::test {

/// When a stream does the work that it was given.
enum class Delays {
  none,     // at once
  longest,  // when somebody waits for it, and not before
  random,   // a thread does some of it now and then
};

/// Faults that can be planted.
enum class Fault {
  none,
  missing_wait,  // a stream does not wait for an event
  wrong_stream,  // work is given to another stream
};

/// Streams of a device that does not exist: each is a list of work, done in order. A stream that waits for an event
/// waits for the work that was given to the event's stream before the event was recorded. Work is done by whichever
/// thread needs its result, one piece at a time in the whole process.
class DelayedStreams {
 public:
  using Work = std::function<void()>;

  /// The end of the first `position` pieces of a stream's work.
  struct Mark {
    c10::Stream stream;
    uint64_t position;
  };

  static DelayedStreams& get();
  ~DelayedStreams();

  /// Does all work that is left, and forgets planted faults and what was found.
  void choose(Delays delays);

  /// Plants a fault: at the `at`-th event that is waited for, or piece of work, from now on; -1: at all.
  void plant(Fault fault, int64_t at);
  /// The same, counting what one rank does (current_context().rank), whichever its threads.
  void plant_on(int rank, Fault fault, int64_t at);
  int64_t num_events_on(int rank);  // since plant_on()

  /// `fills`: it makes new memory, and no number that is told of; no fault is planted in it.
  void push(c10::Stream stream, Work work, bool fills = false);
  Mark mark(c10::Stream stream);
  void wait(c10::Stream stream, const Mark& mark);

  bool is_done(const Mark& mark);
  void run_until(const Mark& mark);
  void run_all(c10::DeviceIndex device);

  /// For each time that the host waits for a device.
  void count_wait();
  int64_t num_waits() const { return num_waits_; }
  static int64_t num_waits_here();  // of the calling thread
  /// How many events streams have waited for, and how much work they were given, since choose().
  int64_t num_events() const { return num_events_; }
  int64_t num_works() const { return num_works_; }

  /// Tells of an access that was not in order. Returned once each, and forgotten, by take_findings().
  void note(std::string finding);
  std::vector<std::string> take_findings();

 private:
  struct Piece {
    std::vector<Mark> after;  // at most one
    Work work;
  };
  struct Queue {
    std::deque<Piece> pieces;
    uint64_t pushed = 0, done = 0;
  };

  /// A fault, and what it may be planted in.
  struct Planted {
    Fault fault = Fault::none;
    int64_t at = 0, num_events = 0, num_works = 0;
  };

  void run_next(Queue& queue);
  void run_now_and_then();
  void stop_thread();
  bool is_planted(Fault fault, int64_t number);

  std::recursive_mutex mutex_;
  std::map<c10::Stream, Queue, bool (*)(const c10::Stream&, const c10::Stream&)> queues_{
      [](const c10::Stream& a, const c10::Stream& b) {
        return std::pair(a.device_index(), a.id()) < std::pair(b.device_index(), b.id());
      }};
  Delays delays_ = Delays::none;
  Fault fault_ = Fault::none;
  int64_t at_ = 0;
  std::map<int, Planted> on_ranks_;
  std::atomic<int64_t> num_waits_{0}, num_events_{0}, num_works_{0};
  std::vector<std::string> findings_;
  std::thread thread_;
  std::atomic<bool> is_ending_{false};
};

}  // namespace tandem::test
