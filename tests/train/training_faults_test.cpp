#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <map>
#include <memory>

#include "tandem/base/error.h"
#include "tandem/flight/analysis.h"
#include "tests/support/files.h"
#include "tests/support/ports.h"
#include "tests/support/running.h"
#include "tests/train/faulty_training.h"

// Every form, with a rank that goes wrong at every place of a training, as threads and as processes: the others are
// released, the rank at fault is named, and the newest checkpoint from before leads to the loss of a run without fault.
// The processes of a third of the table are started, each row and each form in its turn; with TANDEM_FAULTS, all.
namespace tandem::train {
namespace {

namespace fs = std::filesystem;
using Clock = fs::file_time_type::clock;

struct Row {
  std::string place, kind;
  std::vector<std::string_view> forms = {};  // that have this place; empty: all
};

/// Sums of gradients run code of ours.
const std::vector<std::string_view> kServed = {"ddp", "ps", "ps-apart", "ps-async"};
const std::vector<Row> kRows = {
    {"forward", "throw"}, {"backward", "throw"},       {"exchange", "throw"}, {"server", "throw", kServed},
    {"save", "throw"},    {"forward", "kill"},         {"backward", "kill"},  {"exchange", "kill"},
    {"save", "kill"},     {"server", "kill", kServed}, {"write", "kill"},     {"forward", "slow"},
    {"forward", "late"},
};

struct Injection {
  FaultyForm form;
  TrainingFault fault;

  bool is_alone() const { return form.is_alone(); }
  bool is_in_replica() const { return is_alone() && (fault.place == "forward" || fault.place == "backward"); }
};

std::string describe(const Injection& injection) {
  const auto& fault = injection.fault;
  return injection.form.name + " " + fault.place + " " + fault.kind + " rank " + std::to_string(fault.rank);
}

/// Replicas of one process wait for each other without a limit. Threads cannot be killed one by one.
bool exists(const Row& row, const FaultyForm& form, bool as_processes) {
  if (!row.forms.empty() && std::ranges::count(row.forms, form.name) == 0) return false;
  if (row.kind == "late" && form.is_alone()) return false;
  return as_processes || row.kind != "kill";
}

/// Servers apart are the last ranks, and alone run what sums.
int faulty_rank(const FaultyForm& form, size_t row, size_t number) {
  if (kRows[row].place == "server" && form.ps.servers > 0) return kFaultyRanks - 1;
  return static_cast<int>((row / 3 + number) % kFaultyRanks);
}

std::vector<Injection> injections(bool as_processes, size_t every) {
  std::vector<Injection> all;
  const auto forms = faulty_forms();
  for (size_t f = 0; f < forms.size(); ++f) {
    for (size_t r = 0; r < kRows.size(); ++r) {
      if ((r + f) % every != 0 || !exists(kRows[r], forms[f], as_processes)) continue;
      all.push_back({forms[f], {kRows[r].place, kRows[r].kind, faulty_rank(forms[f], r, f)}});
    }
  }
  return all;
}

/// What became of a training.
struct Report {
  std::vector<int> statuses;      // of the ranks; of threads, that of their exception
  std::vector<std::string> told;  // by them
  double released = 0;            // seconds from the fault to the end of the last of the others
  double loss = NAN;
};

double seconds_since_fault(const fs::path& folder) {
  std::error_code none;
  const auto happened = fs::last_write_time(folder / "happened", none);
  return none ? NAN : std::chrono::duration<double>(Clock::now() - happened).count();
}

Report run_threads(const Injection& injection, const fs::path& folder) {
  Report report;
  try {
    comm::run_ranks(
        faulty_world(injection.form),
        [&](comm::ProcessGroup& group) {
          const auto loss = train_with_fault(injection.form, injection.fault, folder, group).loss;
          if (group.rank() == 0) report.loss = loss;
        },
        faulty_world_options(injection.fault, injection.form, folder));
    report.statuses = {0};
  } catch (const std::exception& error) {
    report.statuses = {static_cast<int>(exit_code_of(error))};
    report.told = {"error: " + message_of(error)};
  }
  report.released = seconds_since_fault(folder);
  return report;
}

class Processes {
 public:
  Processes(const Injection& injection, const fs::path& folder) {
    const auto& fault = injection.fault;
    const std::vector<std::string> command = {std::getenv("TANDEM_FAULTY_TRAINING"),
                                              folder.string(),
                                              injection.form.name,
                                              fault.place,
                                              fault.kind,
                                              std::to_string(fault.rank)};
    test::Environment environment = {{"WORLD_SIZE", std::to_string(faulty_world(injection.form))},
                                     {"MASTER_ADDR", "127.0.0.1"},
                                     {"MASTER_PORT", std::to_string(test::free_port())}};
    for (int rank = 0; rank < faulty_world(injection.form); ++rank) {
      environment["RANK"] = std::to_string(rank);
      ranks_.push_back(std::make_unique<test::Running>(command, environment));
    }
    report_.statuses.resize(ranks_.size());
    report_.told.resize(ranks_.size());
  }

  void wait(size_t rank) {
    const auto ended = ranks_[rank]->wait();
    report_.statuses[rank] = ended.status;
    report_.told[rank] = ended.err;
    if (rank == 0 && !ended.out.empty()) report_.loss = std::stod(ended.out);
  }

  Report report(size_t at_fault, const fs::path& folder) {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (rank != at_fault) wait(rank);
    }
    if (ranks_.size() > 1) report_.released = seconds_since_fault(folder);
    wait(at_fault);
    return report_;
  }

 private:
  std::vector<std::unique_ptr<test::Running>> ranks_;
  Report report_;
};

Report run_processes(const Injection& injection, const fs::path& folder) {
  return Processes(injection, folder).report(injection.is_alone() ? 0 : injection.fault.rank, folder);
}

constexpr const char* kImage = "image 'a.png' is not an image";

/// How the line of an exception ends that a rank has thrown, or in which all others have waited for it.
std::string told_by(const Injection& injection) {
  const auto rank = "rank " + std::to_string(injection.fault.rank);
  if (injection.fault.kind == "late") return rank + " did not come within 2000 ms";
  if (injection.is_in_replica()) return std::string(kImage) + " (replica ";
  if (injection.is_alone()) return kImage;
  return kImage + (" (" + rank + " of 3)");
}

/// How the doctor begins.
std::string diagnosis_of(const TrainingFault& fault) {
  const auto rank = "rank " + std::to_string(fault.rank);
  if (fault.kind == "throw") return rank + " ended by itself: " + kImage;
  if (fault.kind == "kill") return rank + " left no record (killed, stopped, ended early, or its machine is gone)";
  return rank + " came too late: ";
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

void expect_holds(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), text.npos) << "'" << text << "' holds no '" << part << "'";
}

constexpr int kDone = 0, kCommunication = static_cast<int>(ExitCode::communication);
const std::map<std::string, int> kStatus = {
    {"throw", static_cast<int>(ExitCode::data)}, {"kill", 128 + SIGKILL}, {"slow", kDone}, {"late", kCommunication}};

void expect_statuses(const Report& report, const Injection& injection) {
  const int at_fault = report.statuses.size() == 1 ? 0 : injection.fault.rank;
  for (int rank = 0; rank < static_cast<int>(report.statuses.size()); ++rank) {
    const auto others = injection.fault.kind == "slow" ? kDone : kCommunication;
    EXPECT_EQ(report.statuses[rank], rank == at_fault ? kStatus.at(injection.fault.kind) : others) << rank;
  }
}

/// One line of the table: what the user reads.
std::string named(const Report& report, const Injection& injection, const fs::path& folder) {
  if (!injection.is_alone() && injection.fault.kind != "slow") return flight::diagnose_flight(folder / "flight");
  return report.told.empty() ? "" : first_line(report.told[0]);
}

double loss_without_fault(const FaultyForm& form) {
  static std::map<std::string, double> known;
  const auto [loss, is_new] = known.try_emplace(form.name, NAN);
  const test::TemporaryFolder folder;
  if (is_new) loss->second = run_threads({form, {}}, folder.path()).loss;
  return loss->second;
}

void expect_loss(double loss, const FaultyForm& form) {
  if (form.has_same_losses()) {
    EXPECT_NEAR(loss, loss_without_fault(form), 1e-12);
  } else {
    EXPECT_TRUE(std::isfinite(loss));
  }
}

void expect_resumes(const Injection& injection, const fs::path& folder) {
  const bool is_in_save = injection.fault.place == "save" || injection.fault.place == "write";
  EXPECT_EQ(CheckpointStore(folder / "checkpoints").list().front(), is_in_save ? kFaultySave - 2 : kFaultySave);
  expect_loss(run_threads({injection.form, {}}, folder).loss, injection.form);
}

template <class Run>
void inject(const Injection& injection, const char* mode, Run run) {
  SCOPED_TRACE(describe(injection) + " " + mode);
  const test::TemporaryFolder folder;
  const Report report = run(injection, folder.path());
  EXPECT_TRUE(fs::exists(folder / "happened"));
  expect_statuses(report, injection);
  const auto name = named(report, injection, folder.path());
  std::printf("%-9s %-34s %5.2f s  %s\n", mode, describe(injection).c_str(), report.released, name.c_str());
  std::fflush(stdout);
  const auto& kind = injection.fault.kind;
  if (kind == "slow") {
    expect_loss(report.loss, injection.form);
    return;
  }
  EXPECT_LT(report.released, 15) << "the others have waited for the end of a timeout";
  if (!injection.is_alone()) {
    EXPECT_TRUE(name.starts_with(diagnosis_of(injection.fault))) << name;
  }
  if (kind == "throw" || (kind == "late" && report.told.size() == 1)) {
    expect_holds(report.told[report.told.size() == 1 ? 0 : injection.fault.rank], told_by(injection));
  }
  expect_resumes(injection, folder.path());
}

TEST(TrainingFaults, ThreadsAreReleasedAndTheRankAtFaultIsNamed) {
  for (const auto& injection : injections(false, 1)) inject(injection, "threads", run_threads);
}

TEST(TrainingFaults, ProcessesAreReleasedAndTheRankAtFaultIsNamed) {
  const auto chosen = injections(true, std::getenv("TANDEM_FAULTS") != nullptr ? 1 : 3);
  EXPECT_GE(chosen.size(), 30u);
  for (const auto& injection : chosen) inject(injection, "processes", run_processes);
}

}  // namespace
}  // namespace tandem::train
