#include "tandem/cli/agent.h"

#include <sys/wait.h>
#include <unistd.h>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/cli/guardian.h"

namespace tandem::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::string name_of(int signal) { return std::to_string(signal) + " (" + strsignal(signal) + ")"; }

class Agent {
 public:
  Agent(const AgentOptions& options, SignalInbox& inbox) : options_(options), inbox_(inbox) {}
  ~Agent();

  int run();

 private:
  void start(int rank);
  void reap();
  void on_end(int rank, int status);
  bool is_expected(int status) const;
  void on_signal(int signal);
  void send_all(int signal) const;
  bool any_runs() const;
  std::optional<std::chrono::milliseconds> time_left() const;

  const AgentOptions& options_;
  SignalInbox& inbox_;
  Guardian guardian_;
  std::vector<pid_t> children_;  // by rank; 0 when it has ended
  int status_ = 0;
  int asked_ = 0;        // the signal with which the ranks were asked to save and end
  bool failed_ = false;  // what comes after the first failure is its consequence
  std::optional<Clock::time_point> kill_at_;
};

Agent::~Agent() {
  for (const pid_t child : children_) {
    if (child == 0) continue;
    kill(-child, SIGKILL);
    waitpid(child, nullptr, 0);
    guardian_.remove(child);
  }
}

int Agent::run() {
  for (int rank = 0; rank < options_.ranks; ++rank) start(rank);
  while (any_runs()) {
    const auto signal = inbox_.wait(time_left());
    if (signal && *signal != SIGCHLD) on_signal(*signal);
    reap();  // after each message: several children may stand behind one SIGCHLD
    if (kill_at_ && Clock::now() >= *kill_at_) {
      send_all(SIGKILL);
      kill_at_.reset();
    }
  }
  return status_;
}

void Agent::start(int rank) {
  ChildOptions child{options_.path, options_.arguments, options_.environment};
  const auto text = std::to_string(rank), size = std::to_string(options_.ranks);
  for (const auto& [name, value] : Variables{{"RANK", text},
                                             {"LOCAL_RANK", text},
                                             {"WORLD_SIZE", size},
                                             {"LOCAL_WORLD_SIZE", size},
                                             {"GROUP_RANK", "0"}}) {
    child.environment.emplace_back(name, value);
  }
  // A rank is in a background process group: reading the terminal would stop it.
  child.keeps_stdin = rank == 0 && !isatty(STDIN_FILENO);
  child.mask = inbox_.mask_before();
  child.guardian = &guardian_;
  children_.push_back(start_child(child));
}

void Agent::reap() {
  for (size_t rank = 0; rank < children_.size(); ++rank) {
    if (children_[rank] == 0) continue;
    const auto status = reap_child(children_[rank]);
    if (!status) continue;
    guardian_.remove(children_[rank]);
    children_[rank] = 0;
    on_end(static_cast<int>(rank), *status);
  }
}

bool Agent::is_expected(int status) const {
  constexpr int kPreempted = static_cast<int>(ExitCode::preempted);
  return status == 0 || status == kPreempted || (asked_ != 0 && status == 128 + asked_);
}

void Agent::on_end(int rank, int status) {
  if (status == 0 || failed_) return;
  if (is_expected(status)) {
    if (status_ == 0) status_ = status;
    if (asked_ == 0) send_all(asked_ = SIGTERM);
    return;
  }
  failed_ = true;
  status_ = status;
  const auto who = "error: rank " + std::to_string(rank) + " of " + std::to_string(options_.ranks);
  log::info(who + (status > 128 ? " was killed by signal " + name_of(status - 128)
                                : " exited with code " + std::to_string(status)));
  send_all(SIGTERM);
  kill_at_ = Clock::now() + options_.grace;
}

void Agent::on_signal(int signal) {
  if (signal == SIGUSR1 || signal == SIGUSR2) return send_all(signal);
  if (asked_ != 0 || failed_) {
    if (status_ == 0) status_ = 128 + signal;
    failed_ = true;
    return send_all(SIGKILL);
  }
  asked_ = signal;
  log::info("signal " + name_of(signal) + ": the ranks save and end; a second one kills them");
  send_all(signal);
}

void Agent::send_all(int signal) const {
  for (const pid_t child : children_) {
    if (child != 0) kill(-child, signal);
  }
}

bool Agent::any_runs() const {
  return std::ranges::any_of(children_, [](pid_t child) { return child != 0; });
}

std::optional<std::chrono::milliseconds> Agent::time_left() const {
  if (!kill_at_) return std::nullopt;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*kill_at_ - Clock::now());
  return std::max(left, std::chrono::milliseconds(0));
}

}  // namespace

int run_agent(const AgentOptions& options, SignalInbox& inbox) { return Agent(options, inbox).run(); }

}  // namespace tandem::cli
