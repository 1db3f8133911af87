#include "tandem/launch/agent.h"

#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/launch/detail/guardian.h"
#include "tandem/launch/detail/last_lines.h"
#include "tandem/launch/stop_rule.h"

namespace tandem::launch {
namespace {

using Clock = std::chrono::steady_clock;

std::string name_of(int signal) { return std::to_string(signal) + " (" + strsignal(signal) + ")"; }

constexpr int kPreempted = static_cast<int>(ExitCode::preempted);
constexpr int kCommunication = static_cast<int>(ExitCode::communication);

/// A rank at fault leaves its groups before it tells its error, so another rank, whose communication then fails, may
/// end first. SIGTERM at that moment would kill the rank at fault and lose its error.
constexpr std::chrono::seconds kTimeForTheCause{5};

/// The letter of a process's state; /proc/PID/stat is "PID (NAME) STATE ...". '?': it cannot be told.
char state_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(") ");
  return name_end == text.npos ? '?' : text[name_end + 2];
}

/// Stopped by a signal or a terminal, not by a debugger.
bool is_suspended(pid_t process) { return state_of(process) == 'T'; }

std::string seconds_of(std::chrono::milliseconds time) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", static_cast<double>(time.count()) / 1000.0);
  return text.data();
}

struct Failure {
  int rank, status;
};

class Agent {
 public:
  Agent(const AgentOptions& options, SignalInbox& inbox) : options_(options), inbox_(inbox), lines_(options.ranks) {}
  ~Agent();

  int run();

 private:
  void start(int rank);
  void reap();
  void on_end(int rank, int status);
  void on_failure(Failure failure);
  void end_others();
  void check_deadlines();
  void tell_failure();
  void tell_end();
  void watch_suspended();
  bool is_asked_for(int status) const;
  std::optional<int> find_suspended() const;
  bool all_are_suspended() const;
  int of_job(int rank) const { return options_.node * options_.ranks + rank; }
  std::string name_of_rank(int rank) const;
  void on_signal(int signal);
  void kill_all();
  void send_all(int signal) const;
  bool any_runs() const;
  std::optional<std::chrono::milliseconds> time_left() const;

  const AgentOptions& options_;
  SignalInbox& inbox_;
  detail::Guardian guardian_;
  const detail::LastLines lines_;
  std::vector<pid_t> children_;  // by rank; 0 when it has ended
  int status_ = 0;
  StopRule stop_rule_;
  std::set<int> sent_;              // signals with which the ranks were asked to end, SIGKILL too
  std::optional<Failure> failure_;  // the failure to report
  bool is_told_ = false, is_ended_by_user_ = false;
  std::optional<Clock::time_point> end_at_;  // SIGTERM, then SIGKILL
  std::optional<Clock::time_point> kill_at_;
  bool waits_for_suspended_ = false;      // the ranks that are left; kill_at_ is theirs
  std::optional<std::string> last_line_;  // of the first rank that ended because it was asked to
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
    reap();  // after every signal: one SIGCHLD may stand for several children
    watch_suspended();
    check_deadlines();
  }
  tell_end();
  return status_;
}

void Agent::check_deadlines() {
  const auto now = Clock::now();
  if (end_at_ && now >= *end_at_) end_others();
  if (!kill_at_ || now < *kill_at_) return;
  if (waits_for_suspended_)
    log::info("error: " + name_of_rank(*find_suspended()) + " was suspended, wanted running: killed");
  kill_all();
}

/// Ranks that are suspended when all others have ended would hold the job for ever. SIGCHLD tells of a child that is
/// suspended or goes on.
void Agent::watch_suspended() {
  if (failure_ || is_ended_by_user_ || waits_for_suspended_ == all_are_suspended()) return;
  waits_for_suspended_ = !waits_for_suspended_;
  if (!waits_for_suspended_) return kill_at_.reset();
  kill_at_ = Clock::now() + options_.grace;
  log::warn(name_of_rank(*find_suspended()) +
            " is suspended, wanted running: the other ranks have ended; it is killed in " + seconds_of(options_.grace) +
            " s unless it goes on");
}

void Agent::start(int rank) {
  ChildOptions child{options_.path, options_.arguments, options_.environment};
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, int>>{{"RANK", of_job(rank)},
                                                          {"LOCAL_RANK", rank},
                                                          {"WORLD_SIZE", options_.nodes * options_.ranks},
                                                          {"LOCAL_WORLD_SIZE", options_.ranks},
                                                          {"GROUP_RANK", options_.node}}) {
    child.environment.emplace_back(name, std::to_string(value));
  }
  // A rank is in a background process group, so reading the terminal would stop it.
  if (of_job(rank) == 0 && !isatty(STDIN_FILENO)) child.input = STDIN_FILENO;
  if (const auto path = lines_.path(rank); !path.empty())
    child.environment.emplace_back("TORCHELASTIC_ERROR_FILE", path);
  child.mask = inbox_.mask_before();
  if (options_.hears_stop_signals) {
    for (const int signal : kStopSignals) sigaddset(&child.mask, signal);
  }
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

/// True for the status of a rank that ends because it was asked to.
bool Agent::is_asked_for(int status) const { return status == kPreempted || sent_.contains(status - 128); }

void Agent::on_end(int rank, int status) {
  if (status == 0 || is_ended_by_user_) return;
  if (sent_.contains(status - 128)) status = lines_.status(rank).value_or(status);  // it had failed before the signal
  if (failure_ || !is_asked_for(status)) return on_failure({rank, status});
  if (status_ == 0) status_ = status;
  if (!last_line_) last_line_ = lines_.line(rank);
  if (sent_.empty()) {
    sent_.insert(SIGTERM);
    send_all(SIGTERM);
  }
}

void Agent::on_failure(Failure failure) {
  const bool is_first = !failure_;
  const bool is_cause = failure.status != kCommunication && !is_asked_for(failure.status);
  if (is_first || (!is_told_ && is_cause)) {
    failure_ = failure;
    status_ = failure.status;
  }
  if (!is_told_ && (is_cause || find_suspended())) tell_failure();
  if (is_first) {
    waits_for_suspended_ = false;
    kill_at_.reset();
    end_at_ = Clock::now() + kTimeForTheCause;
  }
  if (is_told_ && end_at_) end_others();
}

void Agent::end_others() {
  end_at_.reset();
  sent_.insert(SIGTERM);
  send_all(SIGTERM);
  kill_at_ = Clock::now() + options_.grace;
}

void Agent::tell_failure() {
  is_told_ = true;
  const auto [rank, status] = *failure_;
  const auto what = name_of_rank(rank) + (status > 128 ? " was killed by signal " + name_of(status - 128)
                                                       : " exited with code " + std::to_string(status));
  if (const auto line = lines_.line(rank)) log::info(*line);
  const auto suspended = status == kCommunication ? find_suspended() : std::nullopt;
  log::info("error: " + (suspended ? name_of_rank(*suspended) + " is suspended, wanted running: " : "") + what);
}

void Agent::tell_end() {
  if (failure_ && !is_told_) tell_failure();
  if (failure_ || is_ended_by_user_) return;
  if (last_line_) log::info(*last_line_);
}

bool Agent::all_are_suspended() const {
  const auto has_ended = [](pid_t child) { return child == 0; };
  return std::ranges::any_of(children_, has_ended) && any_runs() &&
         std::ranges::all_of(children_, [&](pid_t child) { return has_ended(child) || is_suspended(child); });
}

std::optional<int> Agent::find_suspended() const {
  for (size_t rank = 0; rank < children_.size(); ++rank) {
    if (children_[rank] != 0 && is_suspended(children_[rank])) return static_cast<int>(rank);
  }
  return std::nullopt;
}

std::string Agent::name_of_rank(int rank) const {
  return "rank " + std::to_string(of_job(rank)) + " of " + std::to_string(options_.nodes * options_.ranks);
}

void Agent::on_signal(int signal) {
  if (signal == SIGUSR2) return send_all(signal);
  if (stop_rule_.ends_at_once(signal)) {
    if (status_ == 0) status_ = 128 + signal;
    is_ended_by_user_ = true;
    return kill_all();
  }
  if (sent_.empty()) {
    log::info("signal " + name_of(signal) + ": the ranks save and end" +
              (signal == SIGINT ? "; a second one kills them" : ""));
  }
  sent_.insert(signal);
  send_all(signal);
}

void Agent::kill_all() {
  sent_.insert(SIGKILL);
  send_all(SIGKILL);
  end_at_.reset();
  kill_at_.reset();
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
  const auto next = end_at_ ? end_at_ : kill_at_;
  if (!next) return std::nullopt;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now());
  return std::max(left, std::chrono::milliseconds(0));
}

}  // namespace

int run_agent(const AgentOptions& options, SignalInbox& inbox) { return Agent(options, inbox).run(); }

}  // namespace tandem::launch
