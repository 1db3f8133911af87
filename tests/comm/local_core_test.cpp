#include <atomic>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tandem/comm/local/local_exchange.h"
#include "tandem/comm/local/local_mailbox.h"
#include "tandem/comm/local/task_queue.h"
#include "tests/comm/shared_stages.h"

// The parts of the backends of one host that know no torch, built with ThreadSanitizer whatever the rest is built with:
// threads meet, read and write each other's memory, send messages, run tasks, and are let go in the middle. Any race
// ends it.
namespace {

using namespace tandem::comm;

int faults = 0;

void expect(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "failed: %s\n", what);
  ++faults;
}

void on_threads(int n, const auto& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) threads.emplace_back([&, rank] { body(rank); });
  for (auto& thread : threads) thread.join();
}

/// Each rank writes its own number into everybody's memory and then reads all.
void meet_and_part(int n, int rounds) {
  LocalExchange exchange(n, std::chrono::seconds(60));
  std::atomic<int> wrong{0};
  on_threads(n, [&](int rank) {
    for (int round = 0; round < rounds; ++round) {
      std::vector<int> own(n, -1);
      LocalCall call;
      call.terms.operation = "all";
      call.output = own.data();
      exchange.meet(rank, call);
      for (int other = 0; other < n; ++other) static_cast<int*>(exchange.call(other).output)[rank] = rank + round;
      exchange.part(rank);
      for (int other = 0; other < n; ++other) wrong += own[other] != other + round;
    }
  });
  expect(wrong == 0, "everybody's numbers arrive");
}

/// One rank stays away: the others are let go and nobody is left inside.
void abort_in_the_middle(int n, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    LocalExchange exchange(n, std::chrono::seconds(60));
    std::atomic<int> told{0};
    on_threads(n, [&](int rank) {
      try {
        for (int i = 0;; ++i) {
          if (rank == 0 && i == round % 7) return exchange.abort("rank 0 has ended");
          std::vector<int> own(64, rank);
          LocalCall call;
          call.terms.operation = "all";
          call.input = own.data();
          exchange.meet(rank, call);
          int sum = 0;
          for (int other = 0; other < n; ++other) sum += static_cast<const int*>(exchange.call(other).input)[i % 64];
          exchange.part(rank);
          if (sum != n * (n - 1) / 2) return;
        }
      } catch (const LocalFailure& failure) {
        told += failure.text == "rank 0 has ended";
      }
    });
    expect(told == n - 1, "all others are told of the abort");
  }
}

/// A rank that has met may take longer than the timeout: the others wait, as it still works on their memory.
void part_late(int n) {
  constexpr auto kTimeout = std::chrono::milliseconds(1000);
  LocalExchange exchange(n, kTimeout);
  std::atomic<int> failed{0};
  on_threads(n, [&](int rank) {
    LocalCall call;
    call.terms.operation = "all";
    try {
      exchange.meet(rank, call);
      const auto met = std::chrono::steady_clock::now();
      while (rank == 0 && std::chrono::steady_clock::now() < met + 5 * kTimeout / 4) relax();
      exchange.part(rank);
    } catch (const LocalFailure&) {
      ++failed;
    }
  });
  expect(failed == 0, "no rank leaves before all have parted");
}

/// A process that is suspended for an hour has waited for one long glance.
void stand_still() {
  using namespace std::chrono_literals;
  const AwakeTimer::Clock::time_point start{};
  AwakeTimer timer(1000ms, start);
  expect(timer.glance() == AwakeTimer::kGlance, "waits are cut into glances");
  expect(!timer.has_ended(start + 50ms), "time counts");
  expect(!timer.has_ended(start + 1h), "an hour at once is a long glance");
  auto now = start + 1h;
  for (int i = 0; i < 14; ++i) expect(!timer.has_ended(now += 50ms), "950 ms have not ended");
  expect(timer.has_ended(now += 50ms), "1000 ms have");
  expect(timer.glance() == 0ms, "nothing is left");
}

void disagree(int n) {
  LocalExchange exchange(n, std::chrono::seconds(60));
  std::atomic<int> told{0};
  on_threads(n, [&](int rank) {
    LocalCall call;
    call.terms.operation = rank == 1 ? "broadcast" : "all_reduce";
    try {
      exchange.meet(rank, call);
    } catch (const LocalFailure& failure) {
      told += failure.text == "rank 0 calls all_reduce and rank 1 calls broadcast";
    }
  });
  expect(told == n, "all are told who calls what");
}

void send_around(int n, int rounds) {
  LocalMailbox mailbox(n, std::chrono::seconds(60));
  std::atomic<int> wrong{0};
  on_threads(n, [&](int rank) {
    for (int round = 0; round < rounds; ++round) {
      const auto sent = mailbox.post(rank, (rank + 1) % n, round % 3, std::make_shared<std::string>(100, 'a' + rank));
      const int from = (rank + n - 1) % n;
      const auto got = mailbox.take(round % 2 ? from : LocalMailbox::kAnySource, rank, round % 3);
      wrong += *static_cast<std::string*>(got->content.get()) != std::string(100, 'a' + from) || got->from != from;
      mailbox.accept(got);
      mailbox.await_acceptance(sent, (rank + 1) % n);
    }
  });
  expect(wrong == 0, "messages arrive");
}

/// Calls of one to four turns, in each of which every rank fills its slot and reads all others'.
void take_turns(int n, int calls) {
  const auto stages = test::shared_stages(n, std::chrono::seconds(60));
  std::atomic<int> wrong{0};
  on_threads(n, [&](int rank) {
    auto& stage = *stages[rank];
    const auto number = [&](int call, int turn, int of) { return static_cast<int64_t>(call) * 100 + turn * 10 + of; };
    for (int call = 0; call < calls; ++call) {
      const std::vector<int64_t> sizes(n, call);
      const auto read = [&](int turn) {
        for (int of = 0; of < n; ++of) {
          const auto* slot = reinterpret_cast<const int64_t*>(stage.slot(of, turn));
          wrong += slot[rank] != number(call, turn, of);
        }
      };
      stage.announce({"all", 0, sizes.data(), sizes.data()});
      for (int turn = 0; turn <= call % 4; ++turn) {
        std::fill_n(reinterpret_cast<int64_t*>(stage.slot(rank, turn)), n, number(call, turn, rank));
        stage.meet();
        if (turn == 0) stage.check_agreement([] { return std::string("all"); });
        if (turn == 0) wrong += stage.most_given() != (n > 1 ? call : 0);
        read(turn);
      }
      stage.end(call % 4 + 1);
    }
  });
  expect(wrong == 0, "everybody's slots arrive");
}

/// Calls differ, in the end: all are told, though the first to know goes on with another call.
void disagree_on_stage(int n, int calls) {
  const auto stages = test::shared_stages(n, std::chrono::seconds(60));
  std::atomic<int> told{0};
  on_threads(n, [&](int rank) {
    for (int call = 0; call < 2 * calls; ++call) {
      const char* operation = rank == 1 && call >= calls ? "broadcast" : "all_reduce";
      try {
        stages[rank]->announce({.operation = operation});
        stages[rank]->meet();
        stages[rank]->check_agreement([&] { return std::string(operation); });
        stages[rank]->end(1);
      } catch (const LocalFailure& failure) {
        told += failure.text == "rank 0 calls all_reduce and rank 1 calls broadcast";
        stages[rank]->leave(failure.text);
      }
    }
  });
  expect(told == n * calls, "all are told who calls what, in each later call too");
}

/// Two threads of each rank send, each with tags of its own.
void mail_around(int n, int rounds) {
  std::vector<std::shared_ptr<SegmentMailbox>> boxes;
  for (auto& stage : test::shared_stages(n, std::chrono::seconds(60))) {
    boxes.push_back(std::make_shared<SegmentMailbox>(std::shared_ptr<Stage>(std::move(stage))));
  }
  std::atomic<int> wrong{0};
  on_threads(2 * n, [&](int thread) {
    const int rank = thread / 2, first_tag = thread % 2 * 10, to = (rank + 1) % n, from = (rank + n - 1) % n;
    std::vector<std::shared_ptr<SegmentMailbox::Posted>> posted;
    for (int round = 0; round < rounds; ++round) {
      const auto number = [&](int of) { return (of * 100 + first_tag) * rounds + round; };
      const std::vector<int> numbers(1 + round % 100, number(rank));
      posted.push_back(boxes[rank]->post(to, first_tag + round % 3, {std::as_bytes(std::span(numbers))}));
      boxes[rank]->take(from, first_tag + round % 3, [&](SegmentMailbox::Bytes bytes) {
        int got = 0;
        std::memcpy(&got, bytes.data(), sizeof got);
        wrong += got != number(from) || bytes.size() != numbers.size() * sizeof(int);
      });
      if (round % 7 == 0) posted.clear();
      for (const auto& message : posted) message->wait();
    }
  });
  expect(wrong == 0, "messages through shared memory arrive");
}

/// One rank is let go by another thread of its process, anywhere in a call.
void leave_in_the_middle(int n, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const auto stages = test::shared_stages(n, std::chrono::seconds(60));
    std::atomic<int> told{0};
    on_threads(n + 1, [&](int rank) {
      if (rank == n) return stages[0]->leave("over");
      try {
        for (;;) {
          stages[rank]->announce({.operation = "all"});
          stages[rank]->meet();
          stages[rank]->check_agreement([] { return std::string("all"); });
          stages[rank]->end(1);
        }
      } catch (const LocalFailure& failure) {
        told += failure.text == "over";
      }
    });
    expect(told == n, "all are told why a rank has left");
  }
}

void run_tasks() {
  int sum = 0;
  {
    TaskQueue queue;
    for (int i = 0; i < 1000; ++i) queue.push([&sum, i] { sum += i; });
    queue.drain();
    expect(sum == 499'500, "tasks run in order");
    queue.push([&sum] { sum = 7; });
  }
  expect(sum == 7, "the end waits for what is left");
}

}  // namespace

int main() {
  for (int n = 1; n <= 5; ++n) meet_and_part(n, 2000);
  for (int n = 2; n <= 5; ++n) {
    abort_in_the_middle(n, 100);
    disagree(n);
    send_around(n, 1000);
    take_turns(n, 2000);
    mail_around(n, 1000);
    disagree_on_stage(n, 50);
    leave_in_the_middle(n, 50);
  }
  part_late(3);
  stand_still();
  run_tasks();
  return faults;
}
