#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "tests/cli/run_command.h"
#include "tests/support/files.h"

// The program as it is stopped: before it has begun, and with what its caller ignores or blocks.
namespace tandem::cli {
namespace {

namespace fs = std::filesystem;
using test::Running;
using test::tandem_command;

/// While it lives, this process and what it starts ignore a signal.
class Ignored {
 public:
  explicit Ignored(int signal) : signal_(signal), before_(std::signal(signal, SIG_IGN)) {}
  ~Ignored() { std::signal(signal_, before_); }
  Ignored(const Ignored&) = delete;

 private:
  int signal_;
  void (*before_)(int);
};

/// While it lives, this thread and what it starts block a signal.
class Blocked {
 public:
  explicit Blocked(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  ~Blocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  Blocked(const Blocked&) = delete;

 private:
  sigset_t before_;
};

class Stop : public testing::Test {
 protected:
  std::vector<std::string> job(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"train",
                                      "data.classes=20",
                                      "train.batch=16",
                                      "model=mlp",
                                      "threads=1",
                                      "report.compare=false",
                                      "eval.every=0",
                                      "checkpoint.every=5",
                                      "checkpoint.keep=1000",
                                      "out=" + (folder_ / "run").string()};
    words.insert(words.end(), more.begin(), more.end());
    return tandem_command(words);
  }

  /// Waits until the run has saved that step.
  bool is_saved_soon(int step) const {
    char name[32];
    std::snprintf(name, sizeof name, "step_%08d", step);
    for (int i = 0; i < 6000; ++i) {
      if (fs::exists(folder_ / "run" / "checkpoints" / name)) return true;
      usleep(10'000);
    }
    return false;
  }

  test::TemporaryFolder folder_;
};

TEST_F(Stop, BeforeTheSettingsAreReadThereIsNothingToSave) {
  const auto pipe = (folder_ / "job.toml").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1}) {
    Running running(job({"--config", pipe}));
    const int writer = open(pipe.c_str(), O_WRONLY);  // comes back when the program has opened the pipe
    running.signal(signal);
    const auto ended = running.wait();
    close(writer);
    EXPECT_EQ(ended.status, 75);
    EXPECT_EQ(ended.err, "error: stopped before the job had begun; there is nothing to save\n");
    EXPECT_FALSE(fs::exists(folder_ / "run"));
  }
}

/// Seconds of the CPU that a process has used.
double cpu_seconds(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string field;
  double ticks = 0;
  for (int i = 3; fields >> field; ++i) {
    if (i == 14 || i == 15) ticks += std::stod(field);
  }
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

TEST_F(Stop, WhileMemoryIsPlannedItEndsAtOnce) {
  Running running(tandem_command({"train", "data=synthetic", "head.classes=100", "model=resnet50", "data.size=224",
                                  "train.batch=256", "threads=1", "train.steps=1", "report.compare=false",
                                  "out=" + (folder_ / "run").string()}));
  constexpr double kInTheMiddle = 3;  // of about a minute
  for (int i = 0; i < 6000 && cpu_seconds(running.pid()) < kInTheMiddle; ++i) usleep(10'000);
  running.signal(SIGTERM);
  const auto ended = running.wait();
  EXPECT_EQ(ended.status, 75);
  EXPECT_NE(ended.err.find("error: stopped before the job had begun; there is nothing to save\n"), std::string::npos)
      << ended.err;
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(Stop, OtherSubcommandsEndAsAnyProgram) {
  const auto pipe = (folder_ / "job.toml").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  Running running(tandem_command({"plan", "--config", pipe}));
  const int writer = open(pipe.c_str(), O_WRONLY);
  running.signal(SIGINT);
  EXPECT_EQ(running.wait().status, 128 + SIGINT);
  close(writer);
}

TEST_F(Stop, WhatTheCallerBlocksIsHeard) {
  const Blocked blocked(SIGTERM);
  Running running(job({"train.steps=100000"}));
  running.signal(SIGTERM);  // waits until the program unblocks it, which is the first thing that it does
  EXPECT_EQ(running.wait().status, 75);
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(Stop, WhatTheCallerIgnoresStaysIgnored) {
  for (const int signal : {SIGHUP, SIGINT}) {
    fs::remove_all(folder_ / "run");
    const Ignored ignored(signal);
    Running running(job({"ranks=2", "train.steps=100000"}));
    ASSERT_TRUE(is_saved_soon(5));
    running.signal(signal);
    ASSERT_TRUE(is_saved_soon(50));  // it goes on
    running.signal(SIGTERM);
    EXPECT_EQ(running.wait().status, 75);
  }
}

TEST_F(Stop, RequestsNeverKillHoweverManyCome) {
  Running running(job({"ranks=2", "train.steps=100000"}));
  ASSERT_TRUE(is_saved_soon(5));
  for (const int signal : {SIGTERM, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGINT, SIGINT}) running.signal(signal);
  const auto ended = running.wait();
  EXPECT_EQ(ended.status, 75);
  EXPECT_NE(ended.err.find("stopped  saved at step "), std::string::npos) << ended.err;
}

TEST_F(Stop, ASearchIsSavedToo) {
  Running running(tandem_command({"search", "data.classes=20", "data.size=8", "train.batch=12", "model=search:s2",
                                  "model.cells=3", "model.channels=4", "search.order=1", "train.steps=100000",
                                  "threads=1", "report.compare=false", "eval.every=0", "checkpoint.every=5",
                                  "checkpoint.keep=1000", "out=" + (folder_ / "run").string()}));
  ASSERT_TRUE(is_saved_soon(5));
  running.signal(SIGTERM);
  const auto ended = running.wait();
  EXPECT_EQ(ended.status, 75);
  EXPECT_NE(ended.err.find("stopped  saved at step "), std::string::npos) << ended.err;
}

TEST_F(Stop, AfterTheReportASignalChangesNothing) {
  // stdout is a pipe that is full: the program has written its report's file and waits to tell the result.
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  fcntl(ends[1], F_SETPIPE_SZ, 4096);
  const std::string filler(4096, '.');
  ASSERT_EQ(write(ends[1], filler.data(), filler.size()), 4096);
  std::vector<std::string> words = {"bash", "-c", "exec \"$@\" 1>&$0", std::to_string(ends[1])};
  for (const auto& word : job({"train.steps=10"})) words.push_back(word);
  Running running(words);
  close(ends[1]);
  for (int i = 0; i < 6000 && !fs::exists(folder_ / "run" / "report.html"); ++i) usleep(10'000);
  ASSERT_TRUE(fs::exists(folder_ / "run" / "report.html"));
  for (const int signal : {SIGUSR1, SIGTERM, SIGHUP}) running.signal(signal);
  std::string text(2 * 4096, '\0');
  while (read(ends[0], text.data(), text.size()) > 0) {
  }
  close(ends[0]);
  EXPECT_EQ(running.wait().status, 0);
}

}  // namespace
}  // namespace tandem::cli
