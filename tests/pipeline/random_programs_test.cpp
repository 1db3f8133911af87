#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "tandem/comm/point_to_point.h"
#include "tandem/comm/world.h"
#include "tests/pipeline/shuffled.h"
#include "tests/pipeline/stages_model.h"

// What the proof accepts runs to its end, with the gradients of one device; what it refuses comes to a moment in which
// all ranks wait and nothing is under way.
namespace tandem::pipeline {
namespace {

struct Stuck : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Messages alone, really sent and received; who waits for what, and what is under way.
class Played {
 public:
  explicit Played(const Program& program) : program_(program) {}

  /// False: the ranks have come to a moment in which none can go on.
  bool ends() {
    try {
      comm::run_ranks(program_.num_ranks(), [&](comm::ProcessGroup& group) { run_rank(group); }, {.threads = 1});
    } catch (const std::exception&) {
      const std::lock_guard lock(mutex_);
      if (!is_stuck_) throw;
    }
    return !is_stuck_;
  }

 private:
  int tag_of(const Action& sent) const {
    return 2 * (sent.micro_batch * program_.num_stages() + sent.stage) + (sent.what == What::send_gradient ? 1 : 0);
  }

  void run_rank(comm::ProcessGroup& group) {
    for (const auto& action : program_.lists[group.rank()]) {
      if (!is_message(action.what)) continue;
      const auto partner = partner_of(action);
      const int peer = program_.rank_of[partner.stage];
      if (is_send(action.what)) {
        note([&] { under_way_.insert(action); });
        comm::send_message({at::zeros({1})}, peer, group, tag_of(action));
      } else {
        note([&] { waiting_.insert(partner); });
        comm::receive_message(peer, group, tag_of(partner));
        note([&] { waiting_.erase(partner), under_way_.erase(partner); });
      }
    }
    note([&] { ++ended_; });
  }

  template <class Change>
  void note(const Change& change) {
    const std::lock_guard lock(mutex_);
    change();
    const auto all = static_cast<size_t>(program_.num_ranks());
    if (waiting_.empty() || waiting_.size() + ended_ < all) return;
    for (const auto& message : waiting_) {
      if (under_way_.contains(message)) return;
    }
    is_stuck_ = true;
    throw Stuck("all wait, and nothing is under way");
  }

  const Program& program_;
  std::mutex mutex_;
  std::set<Action> under_way_, waiting_;
  size_t ended_ = 0;
  bool is_stuck_ = false;
};

void expect_runs(const Program& program) {
  const std::vector<int64_t> rows(program.micro_batches, 2);
  Model alone;
  if (program.has_backward()) train_alone(alone, rows);
  comm::run_ranks(program.num_ranks(),
                  [&](comm::ProcessGroup& group) {
                    const at::AutoGradMode with_gradients(program.has_backward());
                    Model own;
                    Executor executor(program, group);
                    Whole stages(own, rows, program.num_stages());
                    executor.run(stages);
                    if (!program.has_backward()) return;
                    expect_gradients(own, alone, program.stages_of(group.rank()), stages.sizes, text_of(program));
                  },
                  {.threads = 1});
}

bool is_accepted(const Program& program) {
  try {
    prove(program);
  } catch (const ProgramError&) {
    return false;
  }
  return true;
}

TEST(RandomPrograms, RunOrHangAsTheProofSays) {
  constexpr int kCount = 1000;
  std::mt19937 random(7);
  int accepted = 0;
  for (int i = 0; i < kCount; ++i) {
    const auto program = random_program(random);
    EXPECT_EQ(Played(program).ends(), is_accepted(program)) << text_of(program);
    if (!is_accepted(program)) continue;
    ++accepted;
    expect_runs(program);
  }
  EXPECT_GT(accepted, kCount / 5);
  EXPECT_LT(accepted, kCount - kCount / 5);
}

}  // namespace
}  // namespace tandem::pipeline
