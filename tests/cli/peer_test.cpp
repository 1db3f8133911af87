#include "tandem/cli/bench/peer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/run_command.h"
#include "tests/support/files.h"
#include "tests/support/python.h"

// Benchmarks whose peer does not start, or does not stay.
namespace tandem::cli {
namespace {

using Words = std::vector<std::string>;

const std::string kRemedy =
    ", wanted peers that start and stay until the end: peers need bench/ of the source tree, and a "
    "Python with torch, which TANDEM_PYTHON names\n";

/// A small run of each benchmark that has a peer, the peer by its name, and what the warning calls it.
struct Case {
  Words words;
  std::string peer, in_warning;
};
const std::vector<Case> kCases = {
    {{"bench", "classifier", "classes=500", "dim=16", "batch=8", "rounds=2"}, "naive", "naive"},
    {{"bench", "ddp", "names=ddp", "models=resnet_glyph", "modes=threads", "batch=4", "rounds=2", "steps=1"},
     "torch",
     "torch, ddp of resnet_glyph"},
    {{"bench", "recompute", "model=resnet18", "batch=2", "size=32", "segments=2", "budgets=0", "rounds=2"},
     "torch",
     "torch"}};

class MissingPeer : public testing::Test {
 protected:
  /// A peer that is a shell's script; its path for TANDEM_PYTHON.
  std::string python(const std::string& script) const {
    const auto path = folder_ / "python";
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path.string();
  }

  static test::Ended run(Words words, const std::string& python) {
    return test::run_tandem(words, {{"TANDEM_PYTHON", python}});
  }

  test::TemporaryFolder folder_;
};

/// The seconds of ours in the JSON of a benchmark.
double own_seconds(const nlohmann::json& result) {
  return (result.contains("own") ? result["own"] : result["cases"])[0]["seconds"];
}

nlohmann::json missing_of(const nlohmann::json& result) {
  return (result.contains("missing") ? result : result["cases"][0])["missing"];
}

TEST_F(MissingPeer, OursIsMeasuredAndAPeerAskedForByNameIsAnError) {
  for (auto [words, peer, in_warning] : kCases) {
    words.insert(words.end(), {"peers=" + peer, "--json", "-"});
    const auto ended = run(words, python("exit 1"));
    EXPECT_EQ(ended.status, 74) << words[1];
    EXPECT_NE(ended.err.find("warning: peer " + in_warning + " is missing: it ended before it was ready\n"),
              std::string::npos)
        << ended.err;
    EXPECT_TRUE(ended.err.ends_with("error: peers names " + peer + kRemedy)) << ended.err;
    const auto result = nlohmann::json::parse(ended.out);
    EXPECT_GT(own_seconds(result), 0) << result;
    EXPECT_EQ(missing_of(result), nlohmann::json({peer}));
  }
}

TEST_F(MissingPeer, OneThatNobodyNamedIsAWarning) {
  for (const auto& one : kCases) {
    const auto ended = run(one.words, python("exit 1"));
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_NE(ended.err.find(" is missing: it ended before it was ready\n"), std::string::npos) << ended.err;
    EXPECT_EQ(ended.out.find(" 0.0000 "), std::string::npos) << ended.out;
  }
}

TEST_F(MissingPeer, OneThatEndsMidwayHasNoResult) {
  // Through the first answer that counts, and not further.
  const auto half = python(R"(echo ready
case $* in */classifier/*) n=2 answer='1 2' ;; *) n=5 answer=1 ;; esac
for i in $(seq $n); do read line; echo $answer; done)");
  for (auto [words, peer, in_warning] : kCases) {
    if (words[1] == "ddp") continue;  // two ranks say "ready"
    words.insert(words.end(), {"peers=" + peer, "--json", "-"});
    const auto ended = run(words, half);
    EXPECT_EQ(ended.status, 74) << words[1];
    EXPECT_NE(ended.err.find("warning: peer " + in_warning + " is missing: it ended instead of answering "),
              std::string::npos)
        << ended.err;
    const auto result = nlohmann::json::parse(ended.out);
    EXPECT_GT(own_seconds(result), 0) << result;
    EXPECT_EQ(missing_of(result), nlohmann::json({peer}));
    EXPECT_EQ(words[1] == "recompute" ? result["peer"] : result["cases"][0]["peers"], nlohmann::json::array());
  }
}

/// Its other processes would wait for it.
TEST_F(MissingPeer, OneOfWhichAProcessEndsIsMissing) {
  if (!test::python_has_torch()) GTEST_SKIP() << "Python has no torch";
  const auto ended = test::run_tandem(
      {"bench", "classifier", "classes=500", "dim=16", "batch=8", "rounds=2", "ranks=2", "peers=partial_fc"},
      {{"TANDEM_PYTHON", test::python()}, {"GLOO_SOCKET_IFNAME", "nowhere"}});
  EXPECT_EQ(ended.status, 74) << ended.err;
  EXPECT_NE(ended.err.find("partial_fc: a rank has ended\n"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("warning: peer partial_fc is missing: it ended before it was ready\n"), std::string::npos);
}

TEST_F(MissingPeer, WithoutPeersNothingIsMissing) {
  for (auto [words, peer, in_warning] : kCases) {
    words.insert(words.end(), {"peers=", "--json", "-"});
    const auto ended = run(words, "/nowhere/python");
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(ended.err.find("missing"), std::string::npos) << ended.err;
    EXPECT_EQ(missing_of(nlohmann::json::parse(ended.out)), nlohmann::json::array());
  }
}

struct Talk {
  std::string script, why;
};

TEST(Peer, IsMissingFromItsFirstWrongWordOn) {
  const std::vector<Talk> talks = {
      {"exit 1", "it ended before it was ready"},
      {"echo hello", "it says 'hello', wanted 'ready'"},
      {"echo ready; read line; echo 1", "it answers '1' to 'step', wanted 2 numbers"},
      {"echo ready; read line; echo 1 2x", "it answers '1 2x' to 'step', wanted 2 numbers"},
      {"echo ready; read line", "it ended instead of answering 'step'"},
  };
  for (const auto& [script, why] : talks) {
    ::testing::internal::CaptureStderr();
    Peer peer("naive", Words{"sh", "-c", script});
    EXPECT_EQ(peer.ask("step", 2), std::nullopt) << script;
    EXPECT_TRUE(peer.is_missing()) << script;
    EXPECT_EQ(peer.ask("step", 2), std::nullopt) << script;
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "warning: peer naive is missing: " + why + "\n");
  }
}

TEST(Peer, ThatCannotBeRunIsMissing) {
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(Peer("naive", Words{"/nowhere/python", "peers.py"}).is_missing());
  EXPECT_TRUE(Peer("naive", std::nullopt).is_missing());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "warning: peer naive is missing: command '/nowhere/python' cannot be run, wanted a program: No such file "
            "or directory\n"
            "warning: peer naive is missing: its script is gone from the sources\n");
}

TEST(Peer, AnswersWithNumbers) {
  Peer peer("naive", Words{"sh", "-c", "echo ready; while read line; do echo $line 0.5; done"});
  EXPECT_EQ(peer.ask("7", 2), (std::vector<double>{7, 0.5}));
  EXPECT_EQ(peer.ask("8", 2), (std::vector<double>{8, 0.5}));
  EXPECT_FALSE(peer.is_missing());
}

}  // namespace
}  // namespace tandem::cli
