#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/cli/command.h"
#include "tandem/settings/settings.h"

namespace tandem::cli {
namespace {

using Words = std::vector<std::string>;

const Command kPlain{
    "plain", "test", "", nullptr, {{"--json", "FILE", ""}, {"--config", "FILE", ""}, {"--quick", "", ""}}};
const Command kLaunching{"launching", "test", "", nullptr, {{"-n", "N", ""}}, true};

std::string fault_of(const Words& words) {
  try {
    read_arguments(kPlain, words);
  } catch (const UsageError& fault) {
    return fault.what();
  }
  return "nothing thrown";
}

TEST(Arguments, FlagsAndWordsMix) {
  const auto arguments = read_arguments(kPlain, Words{"a=1", "--json", "-", "b=2", "--config=f=g.toml", "--quick"});
  EXPECT_EQ(arguments.words, (Words{"a=1", "b=2"}));
  EXPECT_EQ(arguments.flag("--json"), "-");
  EXPECT_EQ(arguments.flag("--config"), "f=g.toml");
  EXPECT_EQ(arguments.flag("--quick"), "");
  EXPECT_EQ(arguments.flag("--help"), std::nullopt);
}

TEST(Arguments, AfterTwoDashesAllAreWords) {
  EXPECT_EQ(read_arguments(kPlain, Words{"a", "--", "--json", "--"}).words, (Words{"a", "--json", "--"}));
}

TEST(Arguments, ACommandKeepsItsOwnFlags) {
  const auto arguments = read_arguments(kLaunching, Words{"-n", "2", "train", "--json", "-", "--", "x"});
  EXPECT_EQ(arguments.flag("-n"), "2");
  EXPECT_EQ(arguments.words, (Words{"train", "--json", "-", "--", "x"}));
  EXPECT_EQ(read_arguments(kLaunching, Words{"-n=2", "--", "-x"}).words, Words{"-x"});
}

TEST(Arguments, WrongFlags) {
  EXPECT_EQ(fault_of({"--jsn", "x"}),
            "flag '--jsn' is unknown, wanted --help, --json, --config or --quick: did you mean --json?");
  EXPECT_EQ(fault_of({"--" + std::string(5000, 'x')}), "flag '--" + std::string(118, 'x') +
                                                           "...' is unknown, wanted --help, --json, --config or "
                                                           "--quick");
  EXPECT_EQ(fault_of({"--json"}), "flag --json has no value, wanted FILE");
  EXPECT_EQ(fault_of({"--json="}), "flag --json has no value, wanted FILE");
  EXPECT_EQ(fault_of({"--quick=1"}), "flag --quick has a value, wanted none");
}

TEST(Commands, TheTableHoldsWhatItShould) {
  ASSERT_NE(find_command("launch"), nullptr);
  ASSERT_NE(find_command("info"), nullptr);
  EXPECT_EQ(find_command("lunch"), nullptr);
  EXPECT_TRUE(find_command("launch")->ends_at_word);
}

}  // namespace
}  // namespace tandem::cli
