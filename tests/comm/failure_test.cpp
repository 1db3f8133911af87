#include "tandem/comm/detail/failure.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tandem/base/error.h"

namespace tandem::comm {
namespace {

TEST(FailureLine, OneProcessNamesNoRank) {
  EXPECT_EQ(detail::failure_line(DataError("image 'a' is empty", "remove it"), {}),
            "error: image 'a' is empty: remove it");
}

TEST(FailureLine, ARanksOwnFaultNamesTheRank) {
  const detail::Place place{.rank = 2, .size = 4, .local_rank = 2};
  EXPECT_EQ(detail::failure_line(DataError("image 'a' is empty"), place), "error: image 'a' is empty (rank 2 of 4)");
  EXPECT_EQ(detail::failure_line(DataError("image 'a' is empty", "remove it"), place),
            "error: image 'a' is empty (rank 2 of 4): remove it");
  EXPECT_EQ(detail::failure_line(std::runtime_error("away"), place), "error: away (rank 2 of 4)");
  DataError named("image 'a' is empty", "remove it");
  named.set_rank(2, 4);
  EXPECT_EQ(detail::failure_line(named, place), "error: image 'a' is empty (rank 2 of 4): remove it");
  EXPECT_EQ(detail::failure_line(RankError("rank 2 of 4: away"), place), "error: rank 2 of 4: away");
}

TEST(FailureLine, AWrongSettingIsToldOncePerMachine) {
  const SettingsError wrong("ranks is 0, wanted 1..1024");
  EXPECT_EQ(detail::failure_line(wrong, {.rank = 0, .size = 4, .local_rank = 0}), "error: ranks is 0, wanted 1..1024");
  EXPECT_EQ(detail::failure_line(wrong, {.rank = 1, .size = 4, .local_rank = 1}), std::nullopt);
  EXPECT_EQ(detail::failure_line(wrong, {.rank = 2, .size = 4, .local_rank = 0}),
            "error: ranks is 0, wanted 1..1024 (rank 2 of 4)");
  SettingsError own("variable X is 'y', wanted a number");
  own.set_rank(1, 4);
  EXPECT_EQ(detail::failure_line(own, {.rank = 1, .size = 4, .local_rank = 1}),
            "error: variable X is 'y', wanted a number (rank 1 of 4)");
}

TEST(FailureLine, TorchsErrorsAreOneLineWithoutAStackTrace) {
  try {
    TORCH_CHECK(false, "first\nsecond");
  } catch (const std::exception& error) {
    const auto line = detail::failure_line(error, {}).value();
    EXPECT_EQ(line.find('\n'), line.npos);
    EXPECT_EQ(line.find("frame #"), line.npos);
    EXPECT_TRUE(line.starts_with("error: first second")) << line;
  }
}

TEST(TorchelasticError, HasTorchrunsKeys) {
  const auto error = nlohmann::json::parse(detail::torchelastic_error("it \"broke\"", 1700000000));
  EXPECT_EQ(error, nlohmann::json::parse(R"({"message": {"message": "it \"broke\"",
                                             "extraInfo": {"py_callstack": "it \"broke\"", "timestamp": "1700000000"}}})"));
  EXPECT_NO_THROW(nlohmann::json::parse(detail::torchelastic_error("bytes \xff", 0)));
  const auto own =
      nlohmann::json::parse(detail::torchelastic_error("it broke", 0, detail::LastWord{"error: it broke", 65}));
  EXPECT_EQ(own["line"], "error: it broke");
  EXPECT_EQ(own["status"], 65);
}

}  // namespace
}  // namespace tandem::comm
