#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "tandem/storage/named_file.h"
#include "tests/cli/run_command.h"
#include "tests/support/files.h"

// Every argument and setting that names a path, with paths that lead nowhere: one line that names the path, and a
// status that says whose fault it is.
namespace tandem::cli {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

struct Place {
  std::string name;
  std::function<Words(const std::string& path)> words;
};

Words training(const Words& more) {
  Words words = {"train",     "data=synthetic", "head.classes=20", "data.size=8",          "embedding=8", "threads=1",
                 "model=mlp", "train.steps=1",  "train.batch=4",   "report.compare=false", "eval.every=0"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::vector<Place> places() {
  return {
      {"--config",
       [](const auto& path) {
         return Words{"info", "--config", path};
       }},
      {"--json",
       [](const auto& path) {
         return Words{"info", "--json", path};
       }},
      {"--page",
       [](const auto& path) { return Words{"memory", "model=mlp", "data.size=8", "train.batch=2", "--page", path}; }},
      {"--figure",
       [](const auto& path) {
         return Words{"plan",           "model=none",    "head.classes=9", "data.size=8",
                      "data=synthetic", "embedding=192", "--figure",       path};
       }},
      {"--compare",
       [](const auto& path) {
         return Words{"memory", "--compare", path, path};
       }},
      {"reshard",
       [](const auto& path) {
         return Words{"reshard", path, "out=/nowhere/x"};
       }},
      {"doctor",
       [](const auto& path) {
         return Words{"doctor", path};
       }},
      {"eval",
       [](const auto& path) {
         return Words{"eval", "resume=" + path};
       }},
      {"out", [](const auto& path) { return training({"out=" + path}); }},
      {"resume",
       [](const auto& path) {
         return training({"out=/nowhere/x", "resume=" + path});
       }},
      {"model.weights",
       [](const auto& path) {
         return training({"out=/nowhere/x", "model.weights=" + path});
       }},
      {"eval.pairs",
       [](const auto& path) {
         return training({"out=/nowhere/x", "eval.pairs=" + path});
       }},
      {"images",
       [](const auto& path) {
         return training({"out=/nowhere/x", "data=images:" + path});
       }},
      {"faces",
       [](const auto& path) {
         return training({"out=/nowhere/x", "data=faces:" + path});
       }},
      {"market1501",
       [](const auto& path) {
         return training({"out=/nowhere/x", "data.size=16", "data=market1501:" + path});
       }},
      {"page",
       [](const auto& path) {
         return Words{"bench", "parity", "page=" + path};
       }},
  };
}

class Paths : public testing::Test {
 protected:
  Paths() { storage::set_pipe_patience(std::chrono::milliseconds(30)); }
  ~Paths() override { storage::set_pipe_patience(std::chrono::seconds(5)); }

  std::string at(const std::string& name) const { return (folder_ / name).string(); }

  /// What no argument can use.
  std::vector<std::string> hostile() {
    fs::create_symlink("loop", folder_ / "loop");
    test::spill(folder_ / "file", "text");
    EXPECT_EQ(mkfifo(at("pipe").c_str(), 0600), 0);
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    at("socket").copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    close(socket);
    return {at("loop"),   at("loop/x"), at(std::string(300, 'y')), at("pipe"),
            at("file/x"), at("socket"), at("no") + "/no/"};
  }

  test::TemporaryFolder folder_;
};

TEST_F(Paths, ThatLeadNowhereAreOneLine) {
  for (const auto& path : hostile()) {
    for (const auto& place : places()) {
      if (place.name == "out" && path == at("no") + "/no/") continue;  // a run makes its folder
      if (place.name == "page" && path == at("pipe")) continue;        // the bench would run, for seconds
      SCOPED_TRACE(place.name + " " + path.substr(0, 80));
      const auto ended = test::run_here(place.words(path));
      const bool is_known = ended.status == 65 || ended.status == 74 || ended.status == 78;
      EXPECT_TRUE(is_known) << ended.status << " " << ended.err;
      const auto last = ended.err.rfind("error: ");
      ASSERT_NE(last, ended.err.npos);
      EXPECT_NE(ended.err.find(path.substr(0, 40), last), ended.err.npos) << ended.err;
      EXPECT_EQ(ended.err.find("filesystem error"), ended.err.npos) << ended.err;
    }
  }
}

TEST_F(Paths, ThatAreEmptyAreUsageErrors) {
  for (const Words& words : {Words{"reshard", "", "ranks=2", "out=x"},
                             {"doctor", ""},
                             {"info", "--json", ""},
                             {"info", "--config="},
                             {"memory", "--compare", "", ""},
                             {"train", ""}}) {
    const auto ended = test::run_here(words);
    EXPECT_EQ(ended.status, 64) << words[0] << ended.err;
  }
  EXPECT_EQ(test::run_here({"doctor", ""}).err,
            "error: argument '' is empty, wanted DIR: a variable of the shell may be unset\n");
}

TEST_F(Paths, OutputsAreCheckedBeforeTheWork) {
  test::spill(folder_ / "file", "text");
  const auto ended = test::run_here({"memory", "model=mlp", "data.size=8", "--page", at("file/x"), "no.setting=1"});
  EXPECT_EQ(ended.status, 74);
  EXPECT_EQ(ended.err, "error: --page file '" + at("file/x") +
                           "' cannot be written: Not a directory; a part of the path is no folder\n");
}

TEST_F(Paths, AFolderThatCannotBeMadeIsKnownBeforeTheWork) {
  test::spill(folder_ / "file", "text");
  fs::create_symlink("nowhere", folder_ / "link");
  EXPECT_EQ(test::run_here(training({"out=" + at("file")})).err, "error: run's folder '" + at("file") +
                                                                     "' cannot be made: '" + at("file") +
                                                                     "' is no folder: name another with out=\n");
  EXPECT_EQ(test::run_here(training({"out=" + at("link/x")})).err,
            "error: run's folder '" + at("link/x") + "' cannot be made: '" + at("link") +
                "' is a link that leads to no folder: name another with out=\n");
  fs::create_directories(folder_ / "run/checkpoints/step_00000001");
  const auto used = test::run_here(training({"out=" + at("run")}));
  EXPECT_EQ(used.status, 78);
  EXPECT_TRUE(used.err.starts_with("error: out is '" + at("run") + "', which holds checkpoints of a run")) << used.err;
}

TEST_F(Paths, AFailedStartLeavesNoFolder) {
  ASSERT_EQ(test::run_here(training({"out=" + at("first")})).status, 0);
  const auto failed = test::run_here(training({"out=" + at("second"), "data.size=16", "model.weights=" + at("first")}));
  EXPECT_EQ(failed.status, 78) << failed.err;
  EXPECT_FALSE(fs::exists(folder_ / "second"));
  fs::create_directory(folder_ / "third");  // it was there before
  EXPECT_EQ(test::run_here(training({"out=" + at("third"), "data.size=16", "model.weights=" + at("first")})).status,
            78);
  EXPECT_TRUE(fs::exists(folder_ / "third"));
}

}  // namespace
}  // namespace tandem::cli
