#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tandem/pipeline/proof.h"
#include "tandem/pipeline/schedule.h"
#include "tandem/pipeline/simulation.h"
#include "tests/support/text_of.h"

// Programs with a classifier that is divided over all ranks.
namespace tandem::pipeline {
namespace {

constexpr int kMostRanks = 5, kMostMicroBatches = 9;

Program divided(std::string_view name, int ranks, int micro_batches, double product = 1) {
  return make_program(schedule_of(name), {.ranks = ranks, .micro_batches = micro_batches, .head = product});
}

/// Calls `check` with the program of each schedule and size.
template <class Check>
void for_each_program(const Check& check) {
  for (const auto& schedule : schedules()) {
    if (!schedule.has_backward) continue;
    for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
      for (int micro_batches = 1; micro_batches <= kMostMicroBatches; ++micro_batches) {
        if (schedule.name == "interleaved" && micro_batches % ranks != 0) continue;
        SCOPED_TRACE(std::string(schedule.name) + ", ranks " + std::to_string(ranks) + ", micro-batches " +
                     std::to_string(micro_batches));
        check(divided(schedule.name, ranks, micro_batches));
      }
    }
  }
}

/// The micro-batches of a rank's actions of one kind, all of its own part.
std::vector<int> micro_batches_of(What what, const Program& program, int rank) {
  std::vector<int> all;
  for (const auto& action : program.lists[rank]) {
    if (action.what != what) continue;
    EXPECT_EQ(action.stage, rank);
    all.push_back(action.micro_batch);
  }
  return all;
}

TEST(DividedHead, EveryScheduleIsProved) {
  for_each_program([](const Program& program) {
    EXPECT_TRUE(program.divides_head());
    EXPECT_NO_THROW(prove(program));
  });
}

TEST(DividedHead, EachRankScoresAndEndsEachMicroBatchInTheirOrder) {
  for_each_program([](const Program& program) {
    std::vector<int> all(program.micro_batches);
    std::iota(all.begin(), all.end(), 0);
    for (int rank = 0; rank < program.num_ranks(); ++rank) {
      EXPECT_EQ(micro_batches_of(What::scores, program, rank), all);
      EXPECT_EQ(micro_batches_of(What::class_gradient, program, rank), all);
    }
  });
}

TEST(DividedHead, TheOrderOfTheStagesStays) {
  for (const auto* name : {"interleaved", "zb-v", "v-half", "v-min"}) {
    const auto without = make_program(schedule_of(name), {.ranks = 3, .micro_batches = 6});
    const auto program = divided(name, 3, 6);
    for (int rank = 0; rank < 3; ++rank) {
      auto list = program.lists[rank];
      std::erase_if(list, [](const Action& action) { return is_of_head(action.what); });
      EXPECT_EQ(list, without.lists[rank]) << name;
    }
  }
}

TEST(DividedHead, TextIsReadAsItIsWritten) {
  for_each_program([](const Program& program) {
    const auto read = parse_program(text_of(program), "my.csv");
    EXPECT_EQ(read.micro_batches, program.micro_batches);
    EXPECT_EQ(read.rank_of, program.rank_of);
    EXPECT_EQ(read.lists, program.lists);
  });
}

TEST(DividedHead, ForwardsAloneHaveNone) { EXPECT_FALSE(divided("inference", 3, 4).divides_head()); }

/// One micro-batch more than without, while all ranks score.
TEST(DividedHead, OneForwardOneBackwardHoldsOneMore) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    for (int micro_batches = 1; micro_batches <= kMostMicroBatches; ++micro_batches) {
      const auto held = prove(divided("1f1b", ranks, micro_batches));
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(held[rank].both, std::min(micro_batches, ranks - rank + 1)) << ranks << " " << micro_batches;
      }
    }
  }
}

TEST(DividedHead, GPipeHoldsTheScoresOfOneMicroBatch) {
  for (const auto& held : prove(divided("gpipe", 4, 8))) {
    EXPECT_EQ(held.scores, 1);
    EXPECT_EQ(held.both, 8);
  }
}

double makespan_of(std::string_view name, double product) {
  const auto program = divided(name, 4, 8, product);
  return simulate(program, even_costs(program, {}), HeadCost::even(product, 4)).makespan;
}

/// Four products of a length of 1 on one rank, that of the last stage, are 8 * (3 + 4) + 9 = 65.
TEST(DividedHead, Makespans) {
  EXPECT_EQ(makespan_of("gpipe", 1), 41);  // 11 + 8 + 22
  EXPECT_EQ(makespan_of("1f1b", 1), 37);   // of 32 without a bubble
  EXPECT_EQ(makespan_of("1f1b", 3), 51);   // of 48
}

TEST(DividedHead, ClockTableOfGPipe) {
  const auto program = divided("gpipe", 2, 2);
  EXPECT_EQ(clock_table(program, simulate(program, even_costs(program, {}), HeadCost::even(1, 2)), 1),
            "        0  1  2  3  4  5  6  7  8  9  10 11 12 \n"
            "rank 0  F0 F1 S0    T0 S1 T1       B0 B0 B1 B1\n"
            "rank 1     F0 F1 S0 T0 S1 T1 B0 B0 B1 B1\n");
}

TEST(DividedHead, MessagesTakeTimeAndScoresBytes) {
  const auto program = divided("gpipe", 2, 1);
  const HeadCost head = {.scores = 1, .class_gradient = 1, .message = 0.5, .kept_bytes = 100};
  const auto simulation = simulate(program, even_costs(program, {}), head);
  // Forwards, scores and class gradient of the home, its backward, that of rank 0, whose class gradient ends before.
  EXPECT_DOUBLE_EQ(simulation.makespan, 2 + 0.5 + 1 + 0.5 + 1 + 2 + 2);
  for (const auto& rank : simulation.ranks) {
    EXPECT_EQ(rank.peak_bytes, 100);
    EXPECT_EQ(rank.actions.back().bytes, 0);
  }
}

constexpr std::string_view kWithoutMessages = "0F0,0S0,0B0,0T0\n1F0,1S0,1B0,1T0\n";
constexpr std::string_view kWithMessages =
    "0F0,0SEND_F0,0RECV_X0,0S0,0SEND_S0,0RECV_B0,0B0,0RECV_T0,0T0\n"
    "1RECV_F0,1F0,1SEND_X0,1S0,1RECV_S0,1SEND_T0,1B0,1SEND_B0,1T0\n";

TEST(DividedHead, AFileWithoutMessagesGetsThem) {
  const auto program = parse_program(kWithoutMessages, "my.csv");
  EXPECT_TRUE(program.divides_head());
  EXPECT_EQ(text_of(program), kWithMessages);
  EXPECT_NO_THROW(prove(program));
}

/// Rank 0 works out its class gradient where it would wait, and the last rank after what others wait for.
TEST(DividedHead, MessagesAreSentAtOnceAndReceivedWhenUsed) {
  EXPECT_EQ(text_of(divided("1f1b", 2, 1)),
            "0F0,0SEND_F0,0RECV_X0,0S0,0SEND_S0,0RECV_T0,0T0,0RECV_B0,0B0\n"
            "1RECV_F0,1F0,1SEND_X0,1S0,1RECV_S0,1SEND_T0,1B0,1SEND_B0,1T0\n");
}

/// Earlier than the home uses them: the others wait for the totals.
TEST(DividedHead, ScoresAreReceivedWhereTheProgramSaysSo) {
  auto program = parse_program("0F0,0F1,0S0,0S1,0T0,0T1,0B0,0B1\n", "my.csv");
  auto& list = program.lists[0];
  list.clear();
  for (const auto* text : {"0F0", "0S0", "0RECV_S0", "0F1", "0B0", "0T0", "0S1", "0T1", "0B1"}) {
    list.push_back(parse_action(text).value());
  }
  EXPECT_EQ(text_of(with_messages(program)),
            "0F0,0SEND_X0,0S0,0RECV_S0,0SEND_T0,0F1,0SEND_X1,0B0,0T0,0S1,0RECV_S1,0SEND_T1,0T1,0B1\n");
}

std::string texts_of(const std::vector<Action>& actions) {
  std::string text;
  for (const auto& action : actions) text += (text.empty() ? "" : " ") + text_of(action);
  return text;
}

TEST(DividedHead, TheHomeMeetsAllOthers) {
  const auto partners = [program = divided("1f1b", 3, 2)](std::string_view message) {
    return texts_of(partners_of(program, parse_action(message).value()));
  };
  EXPECT_EQ(partners("2SEND_X1"), "0RECV_X1 1RECV_X1");
  EXPECT_EQ(partners("1RECV_X1"), "2SEND_X1");
  EXPECT_EQ(partners("0SEND_S1"), "2RECV_S1");
  EXPECT_EQ(partners("2RECV_S1"), "0SEND_S1 1SEND_S1");
  EXPECT_EQ(partners("2SEND_T1"), "0RECV_T1 1RECV_T1");
  EXPECT_EQ(partners("0RECV_T1"), "2SEND_T1");
  EXPECT_EQ(partners("0SEND_F1"), "1RECV_F1");
}

/// With the last stage on the first rank.
TEST(DividedHead, TheHomeHasTheLastStage) {
  const auto program = divided("zb-v", 3, 2);
  EXPECT_EQ(program.home(), 0);
  EXPECT_EQ(texts_of(partners_of(program, {What::send_features, 0, 1})), "1RECV_X1 2RECV_X1");
}

TEST(DividedHead, FeaturesAreFreedWhenAllOthersWaitedForThem) {
  const auto program = parse_program(kWithMessages, "my.csv");
  const std::vector<std::vector<size_t>> receipts = {{}, {}, {}, {}, {2}, {}, {}, {}, {}};
  EXPECT_EQ(receipts_of(program, 1), receipts);
}

std::string refusal_of(const Program& program, const ProofOptions& options = {}) {
  return test::text_of<ProgramError>([&] { prove(program, options); });
}

std::string refusal_of(std::string_view text) { return refusal_of(parse_program(text, "my.csv")); }

/// Of kWithMessages without an action.
std::string refusal_without(std::string_view text) {
  auto program = parse_program(kWithMessages, "my.csv");
  for (auto& list : program.lists) std::erase(list, parse_action(text).value());
  return refusal_of(program);
}

/// Of kWithMessages with an action before a rank's others.
std::string refusal_with(std::string_view text, int rank) {
  auto program = parse_program(kWithMessages, "my.csv");
  auto& list = program.lists[rank];
  list.insert(list.begin(), parse_action(text).value());
  return refusal_of(program);
}

TEST(DividedHead, RefusesAProgramThatLacksAnAction) {
  const std::string first = "my.csv line 1: ", second = "my.csv line 2: ";
  EXPECT_EQ(refusal_without("1SEND_X0"), second + "1S0 comes without 1SEND_X0 before it");
  EXPECT_EQ(refusal_without("0RECV_X0"), first + "0S0 comes without 0RECV_X0 before it");
  EXPECT_EQ(refusal_without("0SEND_S0"),
            second + "1RECV_S0 is met by no send: add 0SEND_S0 to my.csv line 1, or leave it out");
  EXPECT_EQ(refusal_without("1RECV_S0"), second + "1SEND_T0 comes without 1RECV_S0 before it");
  EXPECT_EQ(refusal_without("1SEND_T0"), second + "1T0 comes without 1SEND_T0 before it");
  EXPECT_EQ(refusal_without("0RECV_T0"), first + "0T0 comes without 0RECV_T0 before it");
  EXPECT_EQ(refusal_without("0S0"), first + "0SEND_S0 comes without 0S0 before it");
  EXPECT_EQ(refusal_without("1S0"), second + "1RECV_S0 comes without 1S0 before it");
  EXPECT_EQ(refusal_without("0T0"), first + "there is no 0T0: each rank has a part of the classifier");
  EXPECT_EQ(refusal_without("1T0"), second + "there is no 1T0: each rank has a part of the classifier");
  EXPECT_EQ(refusal_of("0F0,0B0\n1F0,1S0,1B0,1T0\n"),
            first + "there is no 0S0: each rank has a part of the classifier");
}

TEST(DividedHead, RefusesActionsThatComeTooEarly) {
  const std::string place = "my.csv line 1: ";
  EXPECT_EQ(refusal_of("0S0,0F0,0B0,0T0\n"), place + "0S0 comes without 0F0 before it");
  EXPECT_EQ(refusal_of("0SEND_X0,0F0,0S0,0RECV_S0,0B0,0T0\n"), place + "0SEND_X0 comes without 0F0 before it");
  EXPECT_EQ(refusal_of("0F0,0T0,0S0,0B0\n"), place + "0RECV_S0 comes without 0S0 before it");
  EXPECT_EQ(refusal_of("0F0,0S0,0B0,0RECV_S0,0T0\n"), place + "0B0 comes without 0RECV_S0 before it");
  EXPECT_EQ(refusal_of("0F0,0S0,0T0,0RECV_S0,0B0\n"), place + "0T0 comes without 0RECV_S0 before it");
  EXPECT_EQ(refusal_of("0F0,0T0,0RECV_S0,0S0,0B0\n"), place + "0T0 comes without 0S0 before it");
}

TEST(DividedHead, RefusesActionsOfOtherRanks) {
  EXPECT_EQ(refusal_with("1S0", 0), "my.csv line 1: 1S0 is of a part of the classifier that my.csv line 2 holds");
  EXPECT_EQ(refusal_with("2S0", 0), "my.csv line 1: 2S0 is of none of 2 parts of the classifier and 1 micro-batches");
  EXPECT_EQ(refusal_with("1T1", 1), "my.csv line 2: 1T1 is of none of 2 parts of the classifier and 1 micro-batches");
  EXPECT_EQ(refusal_of("0F0,0S0,0S0,0B0,0T0\n"), "my.csv line 1: 0S0 comes twice: leave one out");
  for (const auto* text : {"1RECV_X0", "1SEND_S0", "1RECV_T0"}) {
    EXPECT_EQ(refusal_with(text, 1), std::string("my.csv line 2: ") + text + " is with the last stage, which has it");
  }
  for (const auto* text : {"0SEND_X0", "0RECV_S0", "0SEND_T0"}) {
    EXPECT_EQ(refusal_with(text, 0),
              std::string("my.csv line 1: ") + text + " is without the last stage, which does that");
  }
}

TEST(DividedHead, TellsWhereEachRankWaits) {
  EXPECT_EQ(refusal_of("0F0,0SEND_F0,0RECV_X0,0S0,0RECV_T0,0SEND_S0,0T0,0RECV_B0,0B0\n"
                       "1RECV_F0,1F0,1SEND_X0,1S0,1RECV_S0,1SEND_T0,1B0,1SEND_B0,1T0\n"),
            "ranks would wait for each other: my.csv line 1: 0RECV_T0 (action 5) waits for 1SEND_T0 of my.csv line 2; "
            "my.csv line 2: 1RECV_S0 (action 5) waits for 0SEND_S0 of my.csv line 1: receive later, or send earlier");
}

/// The home sends features between its forwards, for which the others come only after theirs.
TEST(DividedHead, BlockingSendsStopGPipeWithSeveralMicroBatches) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    EXPECT_EQ(refusal_of(divided("gpipe", ranks, 1), {.sends_wait = true}), "nothing thrown") << ranks;
  }
  EXPECT_EQ(refusal_of(divided("gpipe", 2, 2), {.sends_wait = true}),
            "ranks would wait for each other: rank 0: 0SEND_F1 (action 4) waits for 1RECV_F1 of rank 1; "
            "rank 1: 1SEND_X0 (action 3) waits for 0RECV_X0 of rank 0: receive later, or send earlier");
}

}  // namespace
}  // namespace tandem::pipeline
