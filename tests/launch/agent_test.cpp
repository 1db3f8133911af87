#include "tandem/launch/agent.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "tests/cli/run_command.h"
#include "tests/support/files.h"

namespace tandem::launch {
namespace {

using test::run_here;
using test::run_tandem;
using test::Running;
using test::tandem_command;

std::vector<std::string> launch(int ranks, const std::string& script, std::vector<std::string> flags = {}) {
  std::vector<std::string> words = {"launch", "-n", std::to_string(ranks)};
  words.insert(words.end(), flags.begin(), flags.end());
  words.insert(words.end(), {"--", "bash", "-c", script});
  return words;
}

/// A rank that never ends by itself; the last shell in its place, so that its signals are the rank's.
const std::string kForEver = "exec sleep 1000";

TEST(Launch, EachRankKnowsItsPlace) {
  const auto ended = run_tandem(launch(3,
                                       "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR "
                                       "$TORCHELASTIC_USE_AGENT_STORE"),
                                {{"RANK", "7"}, {"WORLD_SIZE", "9"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  for (const auto line : {"0 3 0 3 0 127.0.0.1 True\n", "1 3 1 3 0 127.0.0.1 True\n", "2 3 2 3 0 127.0.0.1 True\n"}) {
    EXPECT_NE(ended.out.find(line), std::string::npos) << ended.out;
  }
}

TEST(Launch, EachRankOfASecondMachineKnowsItsPlace) {
  const auto flags = std::vector<std::string>{"--nodes", "3", "--node", "1", "--meet", "10.0.0.1:29500"};
  const auto ended = run_tandem(launch(2,
                                       "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR "
                                       "$MASTER_PORT $TORCHELASTIC_USE_AGENT_STORE",
                                       flags),
                                {{"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_EQ(ended.status, 0) << ended.err;
  for (const auto line : {"2 6 0 2 1 10.0.0.1 29500 False\n", "3 6 1 2 1 10.0.0.1 29500 False\n"}) {
    EXPECT_NE(ended.out.find(line), std::string::npos) << ended.out;
  }
  const auto failed = run_tandem(launch(2, "[ $RANK = 3 ] && exit 3; " + kForEver, flags));
  EXPECT_EQ(failed.status, 3);
  EXPECT_EQ(failed.err, "error: rank 3 of 6 exited with code 3\n");
}

TEST(Launch, TheStoreIsServed) {
  const auto ended = run_tandem(launch(2, "exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT && echo met"));
  EXPECT_EQ(ended.out, "met\nmet\n") << ended.err;
}

TEST(Launch, RankZeroKeepsStdinAndOthersReadNothing) {
  Running running(tandem_command({"launch", "-n", "2", "bash", "-c", "readlink /proc/self/fd/0"}));
  const auto ended = running.wait();
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_NE(ended.out.find("/dev/null\n"), std::string::npos) << ended.out;
}

TEST(Launch, ASubcommandMeansThisProgram) {
  const auto ended = run_tandem({"launch", "-n", "2", "info", "--json", "-"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.out.find("{\n"), 0u) << ended.out;
}

TEST(Launch, TheFirstFailureIsNamedAndEndsTheOthers) {
  const auto ended = run_tandem(launch(3, "[ $RANK = 1 ] && exit 3; " + kForEver));
  EXPECT_EQ(ended.status, 3);
  EXPECT_EQ(ended.err, "error: rank 1 of 3 exited with code 3\n");
}

TEST(Launch, ADeathBySignalIsNamed) {
  const auto ended = run_tandem(launch(2, "[ $RANK = 1 ] && kill -KILL $$; " + kForEver));
  EXPECT_EQ(ended.status, 128 + SIGKILL);
  EXPECT_EQ(ended.err, "error: rank 1 of 2 was killed by signal 9 (Killed)\n");
}

TEST(Launch, ARankThatIgnoresSigtermIsKilledAfterTheGrace) {
  const auto pipe = "/tmp/tandem_pipe_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto deaf = "trap '' TERM; echo deaf > " + pipe + "; " + kForEver;
  // Rank 1 fails only when rank 0 is deaf: it reads the line that rank 0 writes.
  const auto ended =
      run_tandem(launch(2, "[ $RANK = 0 ] && { " + deaf + "; }; read line < " + pipe + "; exit 4", {"--grace", "0.2"}));
  std::remove(pipe.c_str());
  EXPECT_EQ(ended.status, 4);
  EXPECT_EQ(ended.err, "error: rank 1 of 2 exited with code 4\n");
}

/// Rank 0 tells when its trap is set; the script's ranks then wait.
std::string saving_with(const std::string& signal, const std::string& status) {
  return "trap 'exit " + status + "' " + signal + "; echo ready; while :; do sleep 0.05; done";
}

TEST(Launch, SignalsArePassedOnAndPreemptedRanksGive75) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Running running(tandem_command(launch(2, saving_with(signal == SIGINT ? "INT" : "TERM", "75"))));
    EXPECT_EQ(running.read_line(), "ready");
    EXPECT_EQ(running.read_line(), "ready");
    running.signal(signal);
    const auto ended = running.wait();
    EXPECT_EQ(ended.status, 75);
    EXPECT_EQ(ended.err.find("error"), std::string::npos) << ended.err;
    EXPECT_EQ(ended.err.find("signal " + std::to_string(signal)), 0u) << ended.err;
  }
}

TEST(Launch, OneRankThatIsPreemptedEndsAllWithoutHaste) {
  const auto pipe = "/tmp/tandem_pipe_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  // Rank 0 ends when rank 1 is ready, which then needs longer than the grace of 0 to save.
  const auto slow =
      "trap 'sleep 0.2; echo saved; exit 75' TERM; echo ready > " + pipe + "; while :; do sleep 0.05; done";
  const auto ended = run_tandem(launch(
      2, "exec 2>/dev/null; [ $RANK = 0 ] && { read line < " + pipe + "; exit 75; }; " + slow, {"--grace", "0"}));
  std::remove(pipe.c_str());
  EXPECT_EQ(ended.status, 75);
  EXPECT_EQ(ended.out, "saved\n");
  EXPECT_EQ(ended.err, "");
}

TEST(Launch, RequestsToSaveKillNobodyHoweverManyCome) {
  const std::string patient =
      "exec 2>/dev/null; n=0; trap 'n=$((n+1)); echo heard' TERM HUP QUIT USR1; echo ready; while [ $n -lt 5 ]; do "
      "sleep 0.05; done; "
      "exit 75";
  Running running(tandem_command(launch(2, patient)));
  EXPECT_EQ(running.read_line(), "ready");
  EXPECT_EQ(running.read_line(), "ready");
  for (const int signal : {SIGTERM, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1}) {
    running.signal(signal);
    EXPECT_EQ(running.read_line(), "heard");
    EXPECT_EQ(running.read_line(), "heard");
  }
  const auto ended = running.wait();
  EXPECT_EQ(ended.status, 75);
  EXPECT_EQ(ended.err, "signal 15 (Terminated): the ranks save and end\n");
}

TEST(Launch, ASecondInterruptKills) {
  Running running(tandem_command(launch(2, "trap 'echo heard' INT; echo ready; while :; do sleep 0.05; done")));
  EXPECT_EQ(running.read_line(), "ready");
  EXPECT_EQ(running.read_line(), "ready");
  running.signal(SIGINT);
  EXPECT_EQ(running.read_line(), "heard");
  EXPECT_EQ(running.read_line(), "heard");
  // One that comes within half a second of the first is heard once more; the first that comes later kills.
  std::atomic<bool> has_ended{false};
  std::thread impatient([&, launch = running.pid()] {
    while (!has_ended) {
      kill(launch, SIGINT);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  const auto ended = running.wait();
  has_ended = true;
  impatient.join();
  EXPECT_EQ(ended.status, 128 + SIGINT);
  EXPECT_EQ(ended.err, "signal 2 (Interrupt): the ranks save and end; a second one kills them\n");
}

TEST(Launch, ARankThatOnlyWaitedIsNotBlamed) {
  const auto pipe = "/tmp/tandem_pipe_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  // Rank 1 ends when launch has seen the end of rank 0: the failed communication comes first, its cause after it.
  const auto waits = "read other < " + pipe + "; while [ -e /proc/$other ]; do sleep 0.01; done; exit 65";
  const auto ended = run_tandem(launch(2, "[ $RANK = 1 ] && { " + waits + "; }; echo $$ > " + pipe + "; exit 76"));
  std::remove(pipe.c_str());
  EXPECT_EQ(ended.status, 65);
  EXPECT_EQ(ended.err, "error: rank 1 of 2 exited with code 65\n");
}

TEST(Launch, AnErrorIsToldThoughTheOthersSeeItsRankLeaveFirst) {
  const auto ended = run_tandem({"launch", "-n", "2", "--", std::getenv("TANDEM_FAILING_RANK")});
  EXPECT_EQ(ended.status, 65);
  EXPECT_EQ(ended.err, "error: the data of this rank are bad (rank 1 of 2)\nerror: rank 1 of 2 exited with code 65\n");
}

TEST(Launch, AFailedCommunicationDoesNotWaitForEverForItsCause) {
  const auto told = R"(echo '{"line": "error: bad data", "status": 65}' > "$TORCHELASTIC_ERROR_FILE"; )";
  const auto with = [](const std::string& rank_1) {
    return tandem_command(launch(2, "[ $RANK = 1 ] && { " + rank_1 + kForEver + "; }; exit 76"));
  };
  Running silent(with("")), telling(with(told));  // both wait for 5 s
  const auto without_cause = silent.wait(), with_cause = telling.wait();
  EXPECT_EQ(without_cause.status, 76);
  EXPECT_EQ(without_cause.err, "error: rank 0 of 2 exited with code 76\n");
  EXPECT_EQ(with_cause.status, 65);
  EXPECT_EQ(with_cause.err, "error: bad data\nerror: rank 1 of 2 exited with code 65\n");
}

TEST(Launch, ASuspendedRankIsNamed) {
  const auto pipe = "/tmp/tandem_pipe_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto suspended = "echo $$ > " + pipe + "; kill -STOP $$";
  const auto waits = "read other < " + pipe + "; until grep -q ' T ' /proc/$other/stat; do sleep 0.01; done; exit 76";
  const auto ended = run_tandem(launch(2, "[ $RANK = 1 ] && { " + suspended + "; }; " + waits, {"--grace", "0.2"}));
  std::remove(pipe.c_str());
  EXPECT_EQ(ended.status, 76);
  EXPECT_EQ(ended.err, "error: rank 1 of 2 is suspended, wanted running: rank 0 of 2 exited with code 76\n");
}

const std::string kUntilSuspended = "until grep -q ' T ' /proc/$other/stat; do sleep 0.01; done; ";

TEST(Launch, ASuspendedRankDoesNotHoldAJobWhoseOtherRanksHaveEnded) {
  const auto pipe = "/tmp/tandem_pipe_" + std::to_string(getpid());
  for (const auto& [status, wanted] : {std::pair("0", 128 + SIGKILL), std::pair("75", 75)}) {
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    const auto suspended = "echo $$ > " + pipe + "; kill -STOP $$";
    const auto ends = "read other < " + pipe + "; " + kUntilSuspended + "exit " + status;
    const auto ended = run_tandem(launch(2, "[ $RANK = 1 ] && { " + suspended + "; }; " + ends, {"--grace", "0.2"}));
    std::remove(pipe.c_str());
    EXPECT_EQ(ended.status, wanted);
    EXPECT_EQ(ended.err,
              "warning: rank 1 of 2 is suspended, wanted running: the other ranks have ended; it is killed in 0.2 s "
              "unless it goes on\nerror: rank 1 of 2 was suspended, wanted running: killed\n");
  }
}

TEST(Launch, ASuspendedRankThatGoesOnIsNotKilled) {
  const auto script = "[ $RANK = 1 ] && { echo $$; kill -STOP $$; exit 0; }; exit 0";
  Running running(tandem_command(launch(2, script, {"--grace", "100"})));
  const auto suspended = std::stoi(running.read_line());
  while (test::slurp("/proc/" + std::to_string(suspended) + "/stat").find(" T ") == std::string::npos) usleep(5000);
  kill(suspended, SIGCONT);
  EXPECT_EQ(running.wait().status, 0);
}

TEST(Launch, OneReasonOfSeveralRanksIsToldOnce) {
  const auto ended = run_tandem({"launch", "-n", "3", "train", "data=images:/no/such", "model=mlp", "threads=1"});
  EXPECT_EQ(ended.status, 65) << ended.err;
  EXPECT_EQ(std::ranges::count(ended.err, '\n'), 2) << ended.err;
  EXPECT_EQ(ended.err.find("error: "), 0U) << ended.err;
  EXPECT_NE(ended.err.find("exited with code 65\n"), std::string::npos) << ended.err;
}

TEST(Launch, AProgramThatARankRunsTellsItsErrorItself) {
  const auto ended =
      run_tandem({"launch", "-n", "1", "--", "bash", "-c", "\"$0\" info x; exit 0", test::tandem_command({})[0]});
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.err, "error: argument 'x' is neither a flag nor key=value, wanted key=value\n");
}

TEST(Launch, WhatItTellsItsRanksOfDoesNotStay) {
  const auto ended = run_tandem(launch(1, "echo text >\"$TORCHELASTIC_ERROR_FILE\"; echo $TORCHELASTIC_ERROR_FILE"));
  EXPECT_EQ(ended.err, "");
  ASSERT_TRUE(ended.out.ends_with('\n'));
  EXPECT_FALSE(std::filesystem::exists(ended.out.substr(0, ended.out.size() - 1))) << ended.out;
}

TEST(Launch, TooFewDescriptorsAreNamedBeforeTheStart) {
  const auto limited = [](const std::string& limit) {
    const auto words = tandem_command(launch(4, "sleep 100"));
    std::string command = "ulimit " + limit + "; exec";
    for (const auto& word : words) command += " '" + word + "'";
    return test::run_command({"bash", "-c", command});
  };
  for (const int files : {13, 16, 20}) {
    const auto ended = limited("-n " + std::to_string(files));
    EXPECT_EQ(ended.status, 79) << ended.err;
    EXPECT_EQ(ended.err.find("error: ulimit -n is " + std::to_string(files) + ", wanted "), 0U) << ended.err;
    EXPECT_NE(ended.err.find(" open files or more for launch of 4 ranks: raise the limit"), std::string::npos)
        << ended.err;
  }
}

TEST(Launch, RanksThatDieOfThePassedSignalAreNoFault) {
  Running running(tandem_command(launch(2, "echo ready; " + kForEver)));
  EXPECT_EQ(running.read_line(), "ready");
  EXPECT_EQ(running.read_line(), "ready");
  running.signal(SIGTERM);
  const auto ended = running.wait();
  EXPECT_EQ(ended.status, 128 + SIGTERM);
  EXPECT_EQ(ended.err.find("error"), std::string::npos) << ended.err;
}

TEST(Launch, UserSignalsReachTheRanksAndChangeNothing) {
  Running running(
      tandem_command(launch(1, "trap 'echo warned; exit 0' USR1; echo ready; while :; do sleep 0.05; done")));
  EXPECT_EQ(running.read_line(), "ready");
  running.signal(SIGUSR1);
  const auto ended = running.wait();
  EXPECT_EQ(ended.out, "warned\n");
  EXPECT_EQ(ended.status, 0);
}

TEST(Launch, NothingOutlivesAKilledLaunch) {
  Running running(tandem_command(launch(1, "sleep 1000 & echo $$; echo $!; wait")));
  const auto rank = std::stoi(running.read_line()), grandchild = std::stoi(running.read_line());
  running.signal(SIGKILL);
  EXPECT_EQ(running.wait().status, 128 + SIGKILL);
  EXPECT_TRUE(test::is_gone_soon(rank));
  EXPECT_TRUE(test::is_gone_soon(grandchild));
}

TEST(Launch, NothingOutlivesARank) {
  Running running(tandem_command(launch(1, "sleep 1000 & echo $!")));
  const auto left_behind = std::stoi(running.read_line());
  EXPECT_EQ(running.wait().status, 0);
  EXPECT_TRUE(test::is_gone_soon(left_behind));
}

TEST(Launch, ASettingThatIsWrongEverywhereIsToldOnce) {
  const auto ended = run_tandem({"launch", "-n", "2", "info", "x"});
  EXPECT_EQ(ended.status, 64);
  const std::string told = "error: argument 'x' is neither a flag nor key=value, wanted key=value\nerror: rank ";
  EXPECT_TRUE(ended.err == told + "0 of 2 exited with code 64\n" || ended.err == told + "1 of 2 exited with code 64\n")
      << ended.err;
}

TEST(Launch, WrongWords) {
  const auto fault = [](const std::vector<std::string>& words) {
    const bool starts_a_process = words.back().starts_with("/");
    const auto ended = starts_a_process ? run_tandem(words) : run_here(words);
    EXPECT_EQ(ended.status, 64);
    EXPECT_EQ(ended.out, "");
    return ended.err;
  };
  EXPECT_EQ(fault({"launch", "info"}),
            "error: launch has no -n, wanted the number of ranks: tandem launch -n 2 COMMAND...\n");
  EXPECT_EQ(fault({"launch", "-n", "0", "info"}), "error: -n is 0, wanted 1..1024\n");
  EXPECT_EQ(fault({"launch", "-n", "two", "info"}), "error: -n is 'two', wanted 1..1024\n");
  EXPECT_EQ(fault({"launch", "-n", "2000", "info"}), "error: -n is 2000, wanted 1..1024\n");
  EXPECT_EQ(fault({"launch", "-n", "2", "--grace", "soon", "info"}),
            "error: --grace is 'soon', wanted seconds, 0..86400\n");
  const std::string each = ": on node 1 of 2: tandem launch -n 4 --nodes 2 --node 1 --meet HOST0:29500 COMMAND...\n";
  EXPECT_EQ(fault({"launch", "-n", "2", "--nodes", "2", "--node", "1", "info"}),
            "error: launch has --nodes and no --meet, wanted --nodes, --node and --meet together" + each);
  EXPECT_EQ(fault({"launch", "-n", "2", "--node", "1", "info"}),
            "error: launch has --node and no --nodes, wanted --nodes, --node and --meet together" + each);
  EXPECT_EQ(fault({"launch", "-n", "2", "--nodes", "600", "--node", "1", "--meet", "a:1", "info"}),
            "error: --nodes is 600, wanted 1..512\n");
  EXPECT_EQ(fault({"launch", "-n", "2", "--nodes", "2", "--node", "2", "--meet", "a:1", "info"}),
            "error: --node is 2, wanted 0..1\n");
  EXPECT_EQ(fault({"launch", "-n", "2", "--nodes", "2", "--node", "1", "--meet", "a", "info"}),
            "error: --meet is 'a', wanted HOST:PORT of node 0" + each);
  for (const std::string wrong : {"::1", "[::1]", "[::1", "[::1]29500", "[host0]:29500", "a:b:29500"}) {
    EXPECT_EQ(fault({"launch", "-n", "2", "--nodes", "2", "--node", "1", "--meet", wrong, "info"}),
              "error: --meet is '" + wrong +
                  "', wanted HOST:PORT of node 0: write an IPv6 address in brackets, as in "
                  "[::1]:29500\n");
  }
  EXPECT_EQ(fault({"launch", "-n", "2", "--nodes", "2", "--node", "1", "--meet", "[::1]:0", "info"}),
            "error: the port of --meet is 0, wanted 1..65535\n");
  EXPECT_EQ(fault({"launch", "-n", "2", "--nodes", "2", "--node", "1", "--meet", "a:0", "info"}),
            "error: the port of --meet is 0, wanted 1..65535\n");
  EXPECT_EQ(fault({"launch", "-n", "2"}),
            "error: launch has no command, wanted a program or a subcommand: "
            "tandem launch -n 2 train data=glyphs\n");
  EXPECT_EQ(fault({"launch", "-n", "2", "inof"}),
            "error: command 'inof' is not found, wanted a program on PATH or a "
            "subcommand: did you mean info?\n");
  EXPECT_EQ(fault({"launch", "-n", "2", "/no/such"}),
            "error: command '/no/such' cannot be run, wanted a program: No such file or directory\n");
  EXPECT_EQ(fault({"launch", "-n", "2", "/etc/passwd"}),
            "error: command '/etc/passwd' cannot be run, wanted a program: Permission denied\n");
}

}  // namespace
}  // namespace tandem::launch
