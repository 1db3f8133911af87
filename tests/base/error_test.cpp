#include "tandem/base/error.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

template <class Throw>
std::string text_with_rank(Throw thrower) {
  try {
    try {
      thrower();
    } catch (...) {
      rethrow_with_rank(2, 4);
    }
  } catch (const std::exception& error) {
    return message_of(error);
  }
  return "nothing thrown";
}

TEST(Error, RankStandsBetweenFaultAndRemedy) {
  EXPECT_EQ(text_with_rank([] { throw DataError("image 'a.png' is empty", "remove it"); }),
            "image 'a.png' is empty (rank 2 of 4): remove it");
}

TEST(Error, TypeSurvivesTheRank) {
  try {
    try {
      throw SettingsError("ranks is 0, wanted 1 or more");
    } catch (...) {
      rethrow_with_rank(0, 2);
    }
  } catch (const SettingsError& error) {
    EXPECT_EQ(error.code(), ExitCode::settings);
    EXPECT_STREQ(error.what(), "ranks is 0, wanted 1 or more (rank 0 of 2)");
  }
  EXPECT_THROW(
      {
        try {
          TORCH_CHECK_VALUE(false, "bad");
        } catch (...) {
          rethrow_with_rank(1, 2);
        }
      },
      c10::ValueError);
}

TEST(Error, TorchTextIsOneLineAndNamesTheRank) {
  const auto text = text_with_rank([] { TORCH_CHECK_VALUE(false, "first\nsecond"); });
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_NE(text.find("first second"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("(rank 2 of 4)")) << text;
  EXPECT_EQ(text.find("frame #"), std::string::npos) << text;
}

TEST(Error, AFileNameMayHoldAnything) {
  EXPECT_EQ(message_of(DataError("image 'a  b\nc\x1b[2J' is empty")), "image 'a  b\\x0ac\\x1b[2J' is empty");
}

TEST(Error, ForeignExceptionsAreNested) {
  EXPECT_EQ(text_with_rank([] { throw std::out_of_range("away"); }), "rank 2 of 4: away");
}

TEST(Error, ExitCodes) {
  EXPECT_EQ(exit_code_of(IoError("x")), ExitCode::io);
  EXPECT_EQ(exit_code_of(std::bad_alloc()), ExitCode::out_of_memory);
  EXPECT_EQ(exit_code_of(std::runtime_error("x")), ExitCode::internal);
}

}  // namespace
}  // namespace tandem
