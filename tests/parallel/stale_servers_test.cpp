#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/comm/local/task_queue.h"
#include "tandem/comm/world.h"
#include "tandem/memory/meter.h"
#include "tandem/parallel/updating_servers.h"
#include "tests/parallel/linear_model.h"
#include "tests/support/text_of.h"

// UpdatingServers with staleness: steps that end on another thread, while later ones begin.
namespace tandem::parallel {
namespace {

constexpr int64_t kSteps = 12, kBatch = 11;
constexpr double kRate = 0.02;

struct Arrangement {
  int workers = 1, apart = 0;
  int64_t staleness = 1;
  int ranks() const { return workers + apart; }
};

/// The ends of one rank's steps.
class Ends {
 public:
  /// Starts `end`, and waits until at most `late` have not ended.
  void start(const std::function<void()>& end, int64_t late) {
    ++started_;
    queue_.push([this, end] {
      end();
      ++ended_;
    });
    while (started_ - ended_ > late) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }

 private:
  int64_t started_ = 0;
  std::atomic<int64_t> ended_ = 0;
  comm::TaskQueue queue_;  // last member: destroyed first
};

/// What each rank saw: the updates that its weights had in each step, and its weights at the end.
struct Seen {
  std::vector<int64_t> versions;
  Tensor weight;
};

/// Called before each step of a worker, and when its backward has ended.
struct Watch {
  std::function<void(int worker, int64_t step)> begins = [](int, int64_t) {}, ends = [](int, int64_t) {};
};

void descend(const std::vector<Parameter>& held) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor, placement] : held) {
    tensor.sub_(tensor.grad(), kRate);
    tensor.mutable_grad().reset();
  }
}

Seen train_rank(const Arrangement& of, const Watch& watch, comm::ProcessGroup& group) {
  LinearModel model;
  model.weight.set_requires_grad(true);
  const std::vector parameters = {Parameter::replicated("weight", model.weight)};
  UpdatingServers sync(parameters, {}, group, {.servers = of.apart, .servers_update = true, .staleness = of.staleness});
  const auto held = sync.held(parameters);
  auto sizes = comm::split_sizes(kBatch, of.workers);
  sizes.resize(static_cast<size_t>(of.ranks()), 0);
  int64_t first = 0;
  for (int rank = 0; rank < group.rank(); ++rank) first += sizes[rank];
  Seen seen;
  int64_t sum = 0;
  Ends ends;
  for (int64_t step = 0; step < kSteps; ++step) {
    const bool works = group.rank() < of.workers;
    if (works) watch.begins(group.rank(), step);
    model.run(sync, LinearModel::images(step, kBatch).narrow(0, first, sizes[group.rank()]), 2, kBatch);
    if (works) watch.ends(group.rank(), step);
    if (works) seen.versions.push_back(step - (sync.lag().sum - std::exchange(sum, sync.lag().sum)));
    const auto end = [&] {
      sync.wait_for_gradients();
      descend(held);
      sync.after_step();
    };
    ends.start(end, sync.staleness());
  }
  ends.start([] {}, 0);
  sync.unify();
  EXPECT_LE(sync.lag().most, of.staleness);
  seen.weight = model.weight.detach();
  return seen;
}

/// The same on one device: each worker's gradient at the weights that it had.
Tensor replayed(const std::vector<Seen>& seen, int workers) {
  std::vector<Tensor> weights = {LinearModel().weight};
  const auto sizes = comm::split_sizes(kBatch, workers);
  for (int64_t step = 0; step < kSteps; ++step) {
    auto sum = at::zeros_like(weights.back());
    int64_t first = 0;
    for (int worker = 0; worker < workers; ++worker) {
      const auto own = LinearModel::images(step, kBatch).narrow(0, first, sizes[worker]);
      first += sizes[worker];
      if (own.size(0) == 0) continue;
      LinearModel model;
      model.weight = weights.at(seen[worker].versions[step]);
      sum.add_(model.gradient(own), static_cast<double>(own.size(0)) / kBatch);
    }
    weights.push_back(weights.back() - kRate * sum);
  }
  return weights.back();
}

std::vector<Seen> train(const Arrangement& of, const Watch& watch) {
  std::vector<Seen> seen(static_cast<size_t>(of.ranks()));
  comm::run_ranks(of.ranks(), [&](comm::ProcessGroup& group) { seen[group.rank()] = train_rank(of, watch, group); });
  return seen;
}

void expect_replayed(const Arrangement& of, const std::vector<Seen>& seen) {
  const auto expected = replayed(seen, of.workers);
  for (int worker = 0; worker < of.workers; ++worker) {
    EXPECT_TRUE(at::allclose(seen[worker].weight, expected, 0, 1e-12)) << seen[worker].weight << expected;
  }
}

const std::vector<Arrangement> kArrangements = {{2, 0, 1}, {3, 0, 2}, {5, 0, 3}, {1, 1, 2},
                                                {2, 1, 1}, {3, 2, 2}, {2, 3, 4}, {4, 0, 40}};

/// Each worker is slow in steps of its own.
TEST(StaleServers, AreGradientDescentWithTheWeightsThatWorkersHad) {
  for (const auto& of : kArrangements) {
    SCOPED_TRACE(std::to_string(of.workers) + '+' + std::to_string(of.apart) + " s " + std::to_string(of.staleness));
    const auto seen = train(of, {.begins = [](int worker, int64_t step) {
                              std::this_thread::sleep_for(std::chrono::milliseconds((3 * worker + step) % 4));
                            }});
    expect_replayed(of, seen);
  }
}

TEST(StaleServers, WithoutStalenessHaveAllUpdates) {
  for (const auto& of : std::vector<Arrangement>{{3, 0, 0}, {2, 2, 0}}) {
    const auto seen = train(of, {});
    for (int worker = 0; worker < of.workers; ++worker) {
      for (int64_t step = 0; step < kSteps; ++step) EXPECT_EQ(seen[worker].versions[step], step);
    }
    expect_replayed(of, seen);
  }
}

/// How far workers are apart: steps that one has begun more than another has ended. In step kSlow the last worker waits
/// until the others are as far ahead as they may be.
class Apart {
 public:
  static constexpr int64_t kSlow = 4;

  explicit Apart(const Arrangement& of) : of_(of) {}

  void begin(int worker, int64_t step) {
    begun_[worker] = step;
    for (int other = 0; other < of_.workers; ++other) raise(step - ended_[other]);
    if (worker + 1 < of_.workers || step != kSlow) return;
    const auto last = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!others_wait() && std::chrono::steady_clock::now() < last) std::this_thread::yield();
    EXPECT_TRUE(others_wait());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // to go further if they do not wait
  }

  void end(int worker, int64_t step) { ended_[worker] = step + 1; }
  int64_t most() const { return most_; }

 private:
  bool others_wait() const {
    for (int other = 0; other + 1 < of_.workers; ++other) {
      if (begun_[other] < kSlow + of_.staleness) return false;
    }
    return true;
  }

  void raise(int64_t apart) {
    auto most = most_.load();
    while (most < apart && !most_.compare_exchange_weak(most, apart)) {
    }
  }

  Arrangement of_;
  std::array<std::atomic<int64_t>, 5> begun_{}, ended_{};
  std::atomic<int64_t> most_ = 0;
};

TEST(StaleServers, WorkersAreAsFarApartAsTheyMay) {
  for (const auto& of : kArrangements) {
    if (of.workers == 1 || of.staleness + Apart::kSlow >= kSteps) continue;
    SCOPED_TRACE(std::to_string(of.workers) + '+' + std::to_string(of.apart) + " s " + std::to_string(of.staleness));
    Apart apart(of);
    const auto seen = train(of, {.begins = [&](int worker, int64_t step) { apart.begin(worker, step); },
                                 .ends = [&](int worker, int64_t step) { apart.end(worker, step); }});
    EXPECT_EQ(apart.most(), of.staleness);
    expect_replayed(of, seen);
  }
}

/// (s + 1) S of gradients and a server's part; another S of weights and a server's part.
TEST(StaleServers, HoldWhatTheySay) {
  memory::install_meter();
  constexpr int64_t kNumbers = 1200, kBytes = 4 * kNumbers;
  for (const int64_t staleness : {0, 1, 3}) {
    for (const int apart : {0, 1, 2}) {
      comm::run_ranks(3 + apart, [&](comm::ProcessGroup& group) {
        const RankScope scope(group.rank());
        const std::vector parameters = {Parameter::replicated("weight", at::ones({kNumbers}).requires_grad_())};
        const auto before = memory::account(group.rank());
        const UpdatingServers sync(parameters, {}, group,
                                   {.servers = apart, .servers_update = true, .staleness = staleness});
        const auto after = memory::account(group.rank());
        const auto grown = [&](Category category) {
          return after.live[static_cast<size_t>(category)] - before.live[static_cast<size_t>(category)];
        };
        const bool works = group.rank() < 3, serves = apart == 0 || !works;
        const int64_t part = serves ? kBytes / (apart == 0 ? 3 : apart) : 0;
        EXPECT_EQ(grown(Category::gradients), (works ? (staleness + 1) * kBytes : 0) + part);
        const int64_t more = staleness == 0 ? 0 : (works ? kBytes : 0) + part;
        EXPECT_EQ(grown(Category::parameters), kBytes + more);
      });
    }
  }
}

TEST(StaleServers, RefuseLessThanNothing) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    const std::vector parameters = {Parameter::replicated("weight", at::ones({3}).requires_grad_())};
    EXPECT_EQ(test::text_of<SettingsError>(
                  [&] { UpdatingServers(parameters, {}, group, {.servers_update = true, .staleness = -1}); }),
              "staleness is -1, wanted 0 or more steps");
  });
}

}  // namespace
}  // namespace tandem::parallel
