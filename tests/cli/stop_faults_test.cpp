#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <thread>

#include "tests/cli/run_command.h"
#include "tests/support/files.h"
#include "tests/support/ports.h"

// Jobs that a batch system stops: signals reach every process at once, at a random time, some of them several times.
// Whatever the job is at, it ends with 75 and is saved or has nothing to save, or ends with 0 because it was complete;
// resume=auto goes on. TANDEM_STOPS=40 makes forty of them.
namespace tandem::cli {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using std::chrono::milliseconds;

/// One way to start a job.
struct Form {
  std::string name;
  int ranks;
  bool launch, plain;  // by `tandem launch`; by the plain variables, without a launcher; else threads
};

struct Stop {
  Form form;
  std::vector<int> signals;
  bool waits_for_save;      // the delay begins at the first checkpoint, not at the start
  milliseconds delay, gap;  // to the first signal, between two
  int steps;                // of the whole job: few let the signal come when it is complete
};

std::string describe(const Stop& stop) {
  std::string text = stop.form.name + ", " + std::to_string(stop.steps) + " steps, " +
                     std::to_string(stop.delay.count()) + " ms after the " +
                     (stop.waits_for_save ? "first save" : "start") + " signals";
  for (const int signal : stop.signals) text += " " + std::to_string(signal);
  return text + ", " + std::to_string(stop.gap.count()) + " ms apart";
}

/// The process catches SIGTERM, or it is a launcher that reads it: field "SigCgt" or "SigBlk", hexadecimal.
bool hears(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("SigCgt:") && !line.starts_with("SigBlk:")) continue;
    if ((std::stoull(line.substr(7), nullptr, 16) >> (SIGTERM - 1) & 1) != 0) return true;
  }
  return false;
}

pid_t parent_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(") ");
  return name_end == text.npos ? 0 : std::stoi(text.substr(name_end + 4));
}

std::vector<pid_t> children_of(const std::vector<pid_t>& parents) {
  std::vector<pid_t> children;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const auto name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    if (std::ranges::count(parents, parent_of(std::stoi(name))) > 0) children.push_back(std::stoi(name));
  }
  return children;
}

/// A job in a folder of its own that is started, stopped, looked at and resumed.
class StoppedJob {
 public:
  explicit StoppedJob(const Stop& stop) : stop_(stop) {}

  /// How it ended: "saved", "nothing begun" or "complete".
  std::string run(std::mt19937& random) {
    start();
    for (const auto& process : processes_) await_hearing(process->pid());
    for (int i = 0; stop_.waits_for_save && saved_step() == 0 && i < 6000; ++i) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    std::this_thread::sleep_for(stop_.delay);
    for (const int signal : stop_.signals) {
      send_to_all(signal, random);
      std::this_thread::sleep_for(stop_.gap);
    }
    const auto kind = collect();
    resume(kind);
    return kind;
  }

 private:
  Words job(const Words& more) const {
    Words words = {"train",           "data.classes=50",         "data.train_fonts=bkai,gkai,noto-sans",
                   "model=mlp",       "data.test_fonts=ukai",    "report.compare=false",
                   "threads=1",       "train.batch=16",          "checkpoint.every=1",
                   "comm.timeout=60", "train.schedule=constant", "out=" + (folder_ / "run").string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  void start() {
    auto words = job({"train.steps=" + std::to_string(stop_.steps)});
    const auto ranks = std::to_string(stop_.form.ranks);
    if (stop_.form.launch) words.insert(words.begin(), {"launch", "-n", ranks, "--"});
    if (!stop_.form.launch && !stop_.form.plain) words.push_back("ranks=" + ranks);
    const auto port = std::to_string(test::free_port());
    for (int rank = 0; rank < (stop_.form.plain ? stop_.form.ranks : 1); ++rank) {
      test::Environment variables;
      if (stop_.form.plain) {
        variables = {
            {"RANK", std::to_string(rank)}, {"WORLD_SIZE", ranks}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}};
      }
      processes_.push_back(std::make_unique<test::Running>(test::tandem_command(words), variables));
    }
  }

  /// The loader needs some milliseconds before any code of the program can run.
  static void await_hearing(pid_t process) {
    for (int i = 0; i < 10'000 && !hears(process); ++i) std::this_thread::sleep_for(milliseconds(1));
  }

  void send_to_all(int signal, std::mt19937& random) const {
    std::vector<pid_t> all;
    for (const auto& process : processes_) all.push_back(process->pid());
    for (const pid_t child : children_of(all)) all.push_back(child);
    std::ranges::shuffle(all, random);
    for (const pid_t process : all) kill(process, signal);
  }

  std::string collect() {
    std::vector<test::Ended> ended(processes_.size());
    std::vector<std::thread> readers;
    for (size_t i = 0; i < ended.size(); ++i) readers.emplace_back([&, i] { ended[i] = processes_[i]->wait(); });
    for (auto& reader : readers) reader.join();
    for (const auto& one : ended) {
      told_ += one.err;
      EXPECT_EQ(one.status, ended[0].status) << describe(stop_) << "\n" << told_;
    }
    const int status = ended[0].status;
    EXPECT_TRUE(status == 0 || status == 75) << status << ": " << describe(stop_) << "\n" << told_;
    if (status == 0) return "complete";
    return told_.find("stopped  saved at step ") != told_.npos ? "saved" : "nothing begun";
  }

  int saved_step() const {
    std::error_code error;
    int newest = 0;
    for (const auto& entry : fs::directory_iterator(folder_ / "run" / "checkpoints", error)) {
      const auto name = entry.path().filename().string();
      if (name.starts_with("step_")) newest = std::max(newest, std::stoi(name.substr(5)));
    }
    return newest;
  }

  void resume(const std::string& kind) const {
    const int saved = saved_step();
    EXPECT_EQ(saved > 0, kind != "nothing begun") << describe(stop_) << "\n" << told_;
    EXPECT_TRUE(kind != "complete" || saved == stop_.steps) << saved << ": " << describe(stop_);
    const auto ended = test::run_tandem(
        job({"resume=auto", "ranks=" + std::to_string(stop_.form.ranks), "train.steps=" + std::to_string(saved + 2)}));
    EXPECT_EQ(ended.status, 0) << describe(stop_) << "\n" << ended.err;
    const auto goes_on = saved > 0 ? "goes on after step " + std::to_string(saved) + "\n" : "begins at step 0\n";
    EXPECT_NE(ended.err.find(goes_on), std::string::npos) << describe(stop_) << "\n" << ended.err;
  }

  const Stop stop_;
  test::TemporaryFolder folder_;
  std::vector<std::unique_ptr<test::Running>> processes_;
  std::string told_;
};

TEST(StopFaults, EachStopSavesOrHasNothingToSave) {
  const char* asked = std::getenv("TANDEM_STOPS");
  const int count = asked != nullptr ? std::atoi(asked) : 4;
  const std::vector<Form> forms = {{"tandem launch -n 2", 2, true, false},
                                   {"two processes without a launcher", 2, false, true},
                                   {"tandem launch -n 2", 2, true, false},
                                   {"three threads", 3, false, false}};
  const std::vector<std::vector<int>> signals = {{SIGTERM},          {SIGTERM, SIGTERM}, {SIGUSR1, SIGTERM, SIGTERM},
                                                 {SIGINT},           {SIGHUP, SIGHUP},   {SIGQUIT, SIGUSR1, SIGQUIT},
                                                 {SIGUSR1, SIGUSR1}, {SIGHUP},           {SIGINT, SIGTERM, SIGHUP}};
  std::mt19937 random(20'261'122);
  const auto up_to = [&](int most) { return milliseconds(std::uniform_int_distribution<int>(0, most)(random)); };
  std::map<std::string, int> kinds;
  for (int i = 0; i < count; ++i) {
    const bool waits_for_save = up_to(2).count() > 0;  // two of three
    const Stop stop{.form = forms[i % forms.size()],
                    .signals = signals[i % signals.size()],
                    .waits_for_save = waits_for_save,
                    .delay = up_to(waits_for_save ? 1500 : 3000),
                    .gap = up_to(400),
                    .steps = i % 3 == 2 ? 15 : 1'000'000};
    const auto kind = StoppedJob(stop).run(random);
    ++kinds[kind];
    if (asked != nullptr) std::printf("%d: %s: %s\n", i + 1, describe(stop).c_str(), kind.c_str());
    std::fflush(stdout);
  }
  for (const auto& [kind, times] : kinds) std::printf("%d %s\n", times, kind.c_str());
}

}  // namespace
}  // namespace tandem::cli
