#include "tandem/pipeline/proof.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>

#include "tandem/pipeline/schedule.h"
#include "tests/pipeline/shuffled.h"
#include "tests/support/text_of.h"

namespace tandem::pipeline {
namespace {

std::string refusal_of(const std::string& text, const ProofOptions& options = {}) {
  return test::text_of<ProgramError>([&] { prove(parse_program(text, "my.csv"), options); });
}

/// Whether the actions of all ranks, with an edge from each to what must come later, have no circle: by depth first
/// search over two nodes an action, its begin and its end.
bool has_no_circle(const Program& program, bool sends_wait) {
  std::map<Action, std::pair<int, int>> nodes;
  int count = 0;
  for (const auto& list : program.lists) {
    for (const auto& action : list) nodes[action] = {2 * count, 2 * count + 1}, ++count;
  }
  std::vector<std::vector<int>> edges(2 * count);
  for (const auto& list : program.lists) {
    for (size_t i = 0; i < list.size(); ++i) {
      const auto [begin, end] = nodes[list[i]];
      edges[begin].push_back(end);
      if (i > 0) edges[nodes[list[i - 1]].second].push_back(begin);
      if (!is_send(list[i].what) && !(is_receive(list[i].what) && sends_wait)) continue;
      for (const auto& partner : partners_of(program, list[i])) edges[begin].push_back(nodes[partner].second);
    }
  }
  std::vector<int> state(edges.size());  // 0: new, 1: under way, 2: done
  const std::function<bool(int)> visit = [&](int node) {
    if (state[node] != 0) return state[node] == 2;
    state[node] = 1;
    for (const int next : edges[node]) {
      if (!visit(next)) return false;
    }
    state[node] = 2;
    return true;
  };
  for (int node = 0; node < 2 * count; ++node) {
    if (!visit(node)) return false;
  }
  return true;
}

TEST(Proof, AcceptsEverySchedule) {
  for (const auto& schedule : schedules()) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (const int micro_batches : {1, 2, 3, 5, 8, 16, 23}) {
        const int count = schedule.name == "interleaved" ? micro_batches * ranks : micro_batches;
        const auto program = make_program(schedule, {.ranks = ranks, .micro_batches = count, .chunks = 3});
        EXPECT_NO_THROW(prove(program)) << schedule.name << " " << ranks << " " << count;
        EXPECT_EQ(program.num_stages(), ranks * (schedule.name == "interleaved" ? 3 : schedule.chunks));
      }
    }
  }
}

/// prove() accepts it where the search finds no circle, and refuses it for nothing else. Counts both in `seen`.
void expect_agreement(const Program& program, std::map<bool, int>& seen) {
  for (const bool sends_wait : {false, true}) {
    bool is_accepted = true;
    try {
      prove(program, {.sends_wait = sends_wait});
    } catch (const ProgramError& error) {
      is_accepted = false;
      EXPECT_NE(std::string(error.what()).find("ranks would wait for each other"), std::string::npos) << error.what();
    }
    EXPECT_EQ(is_accepted, has_no_circle(program, sends_wait)) << text_of(program);
    ++seen[is_accepted];
  }
}

TEST(Proof, AgreesWithASearchForCircles) {
  std::mt19937 random(1);
  std::map<bool, int> seen;
  for (int i = 0; i < 2000; ++i) expect_agreement(random_program(random), seen);
  EXPECT_GT(seen[true], 500);
  EXPECT_GT(seen[false], 500);
}

TEST(Proof, AgreesWithASearchForCirclesWhereTheHeadIsDivided) {
  std::mt19937 random(2);
  std::map<bool, int> seen;
  for (int i = 0; i < 1000; ++i) expect_agreement(random_program(random, 1.0), seen);
  EXPECT_GT(seen[true], 100);
  EXPECT_GT(seen[false], 500);
}

TEST(Proof, TellsWhereEachRankWaits) {
  const std::string text =
      "0F0,0RECV_B0,0SEND_F0,0B0\n"
      "1RECV_F0,1F0,1B0,1SEND_B0\n";
  EXPECT_EQ(refusal_of(text),
            "ranks would wait for each other: my.csv line 1: 0RECV_B0 (action 2) waits for 1SEND_B0 of my.csv line 2; "
            "my.csv line 2: 1RECV_F0 (action 1) waits for 0SEND_F0 of my.csv line 1: receive later, or send earlier");
}

TEST(Proof, BlockingSendsStop1F1B) {
  const auto program = make_program(schedule_of("1f1b"), {.ranks = 2, .micro_batches = 4});
  EXPECT_NO_THROW(prove(program));
  EXPECT_THROW(prove(program, {.sends_wait = true}), ProgramError);
  EXPECT_NO_THROW(prove(make_program(schedule_of("gpipe"), {.ranks = 4, .micro_batches = 8}), {.sends_wait = true}));
}

TEST(Proof, NamesBothLinesOfAMessageThatNobodySends) {
  EXPECT_EQ(refusal_of("0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
            "my.csv line 2: 1RECV_F0 is met by no send: add 0SEND_F0 to my.csv line 1, or leave it out");
  EXPECT_EQ(refusal_of("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1\n"),
            "my.csv line 1: there is no 0F1: each stage runs each micro-batch");
  EXPECT_EQ(refusal_of("0F0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
            "my.csv line 1: 0B0 comes without 0RECV_B0 before it");
}

TEST(Proof, RefusesAStepThatIsNotWhole) {
  EXPECT_EQ(refusal_of("0F0,0F0,0B0\n"), "my.csv line 1: 0F0 comes twice: leave one out");
  EXPECT_EQ(refusal_of("0F0,0F1,0B0\n"), "my.csv line 1: there is no 0B1: each stage runs each micro-batch");
  EXPECT_EQ(refusal_of("0F0,0I0\n"), "my.csv line 1: there is no 0W0: each stage runs each micro-batch");
  EXPECT_EQ(refusal_of("0F0,0W0,0I0\n"), "my.csv line 1: 0W0 comes without 0I0 before it");
  EXPECT_EQ(refusal_of("0B0,0F0\n"), "my.csv line 1: 0B0 comes without 0F0 before it");
  EXPECT_EQ(refusal_of("0F0,0B0,0I0\n"), "my.csv line 1: 0I0 is done by 0B0");
  EXPECT_EQ(refusal_of("0F0,1F0,0I0,1I0,0W0,1W0\n"), "my.csv line 1: 0I0 comes without 1I0 before it");
  EXPECT_EQ(refusal_of("0F0,1F0,1SEND_B0,1B0,0B0\n"),
            "my.csv line 1: 1SEND_B0 is between two stages of this rank: leave it out");
  EXPECT_EQ(refusal_of("0F0,0B0,0SEND_F0\n"), "my.csv line 1: 0SEND_F0 has no stage at its other end");
  EXPECT_EQ(refusal_of("0F0,1B0,0B0\n1F0,1B0\n"), "my.csv line 1: 1B0 is of a stage that my.csv line 2 holds");
}

TEST(Proof, BoundsWhatARankHolds) {
  const auto program = make_program(schedule_of("1f1b"), {.ranks = 4, .micro_batches = 8});
  const auto held = prove(program, {.most_held = 4});
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(held[rank].graphs, 4 - rank);
  EXPECT_THROW(prove(program, {.most_held = 3}), ProgramError);
}

// A receive names its message and a send does not wait, so the lists that stopped torch run; where sends wait, they
// stop.
TEST(Proof, PyTorch172668And178815LateReceives) {
  const auto program = make_program(schedule_of("interleaved"), {.ranks = 2, .micro_batches = 4});
  const auto text = text_of(program);
  EXPECT_NE(text.find("0SEND_F2,2RECV_B0"), std::string::npos) << text;
  EXPECT_NE(text.find("3SEND_B0,3RECV_F1,3F1,3B1,3SEND_B1,1RECV_F2"), std::string::npos) << text;
  EXPECT_EQ(refusal_of(text), "nothing thrown");
  EXPECT_EQ(refusal_of(text, {.sends_wait = true}),
            "ranks would wait for each other: my.csv line 1: 0SEND_F1 (action 4) waits for 1RECV_F1 of my.csv line 2; "
            "my.csv line 2: 1SEND_F0 (action 3) waits for 2RECV_F0 of my.csv line 1: receive later, or send earlier");
}

TEST(Proof, MessagesUnderWayDoNotGrowWithTheMicroBatches) {
  for (const auto* name : {"1f1b", "zb-h1", "v-half", "v-min", "zb-v"}) {
    const auto few = prove(make_program(schedule_of(name), {.ranks = 4, .micro_batches = 8}));
    const auto many = prove(make_program(schedule_of(name), {.ranks = 4, .micro_batches = 64}));
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(few[rank].inputs, many[rank].inputs) << name << " " << rank;
      EXPECT_EQ(few[rank].messages, many[rank].messages) << name << " " << rank;
    }
  }
}

}  // namespace
}  // namespace tandem::pipeline
