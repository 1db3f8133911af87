#include "tandem/pipeline/program.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/pipeline/schedule.h"
#include "tests/support/text_of.h"

namespace tandem::pipeline {
namespace {

std::string error_of(const std::string& text) {
  return test::text_of<SettingsError>([&] { parse_program(text, "my.csv"); });
}

TEST(Action, HasTorchsNotation) {
  for (const auto* text : {"0F0", "3B12", "0I3", "7W1", "0SEND_F3", "1RECV_F3", "1SEND_B3", "0RECV_B3"}) {
    const auto action = parse_action(text);
    ASSERT_TRUE(action) << text;
    EXPECT_EQ(text_of(*action), text);
  }
  for (const auto* text : {"", "F0", "0F", "0f0", "0F0x", "-1F0", "0F-1", "0RECV0", "99999999999F0"}) {
    EXPECT_FALSE(parse_action(text)) << text;
  }
}

TEST(Action, PartnersMeet) {
  EXPECT_EQ(text_of(partner_of(*parse_action("0SEND_F3"))), "1RECV_F3");
  EXPECT_EQ(text_of(partner_of(*parse_action("1RECV_F3"))), "0SEND_F3");
  EXPECT_EQ(text_of(partner_of(*parse_action("1SEND_B3"))), "0RECV_B3");
  EXPECT_EQ(text_of(partner_of(*parse_action("0RECV_B3"))), "1SEND_B3");
}

TEST(Program, MessagesAreSentAtOnceAndReceivedWhenUsed) {
  EXPECT_EQ(text_of(make_program(schedule_of("1f1b"), {.ranks = 2, .micro_batches = 2})),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
  // Stages 1 and 2 are on one rank.
  EXPECT_EQ(text_of(make_program(schedule_of("zb-v"), {.ranks = 2, .micro_batches = 1})),
            "0F0,0SEND_F0,3RECV_F0,3F0,3I0,3SEND_B0,3W0,0RECV_B0,0I0,0W0\n"
            "1RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2I0,2W0,1I0,1SEND_B0,1W0\n");
}

TEST(Program, IsReadAsItIsWritten) {
  const auto program = make_program(schedule_of("v-half"), {.ranks = 3, .micro_batches = 4});
  const auto read = parse_program(text_of(program), "my.csv");
  EXPECT_EQ(read.micro_batches, 4);
  EXPECT_EQ(read.rank_of, (std::vector<int>{0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(read.lists, program.lists);
}

TEST(Program, IsReadFromATableWithoutMessages) {
  const auto program = parse_program("# two ranks\n0F0,0F1,,,0B0, 0B1\r\n\n\"\",1F0,1B0,1F1,1B1\n", "my.csv");
  EXPECT_EQ(program.num_ranks(), 2);
  EXPECT_EQ(text_of(program),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
  EXPECT_EQ(program.place_of(1), "my.csv line 4");
}

TEST(Program, SaysWhatIsWrongWithAFile) {
  EXPECT_EQ(error_of("0F0\n1F0,1G0\n"),
            "my.csv line 2: '1G0' is no action: write the stage, F, B, I, W, S, T, SEND_F, RECV_F or another message, "
            "and the "
            "micro-batch: 0F3");
  EXPECT_EQ(error_of("0F0\n1F0,0F1\n"),
            "my.csv line 2: 0F1, but stage 0 is in my.csv line 1, too: one rank holds a stage");
  EXPECT_EQ(error_of("0F0,0F1\n2F0,2F1\n"), "my.csv: no rank has a forward of stage 1: number the stages from 0 on");
  EXPECT_EQ(error_of(""), "my.csv: there is no action: write one line a rank: 0F0,0B0");
  EXPECT_EQ(error_of("0F0,2000000000F0\n"),
            "my.csv line 1: 2000000000F0 is one of 2 actions, wanted smaller numbers: number stages and micro-batches "
            "from 0 on");
}

}  // namespace
}  // namespace tandem::pipeline
