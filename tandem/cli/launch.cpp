#include "tandem/base/error.h"
#include "tandem/base/limits.h"
#include "tandem/base/quote.h"
#include "tandem/base/suggest.h"
#include "tandem/cli/command.h"
#include "tandem/cli/stop_signals.h"
#include "tandem/launch/agent.h"
#include "tandem/launch/signal_inbox.h"
#include "tandem/launch/stop_rule.h"
#include "tandem/launch/store_server.h"
#include "tandem/rendezvous/endpoint.h"
#include "tandem/rendezvous/environment.h"
#include "tandem/rendezvous/listen.h"
#include "tandem/settings/value.h"

namespace tandem::cli {
namespace {

constexpr int kMostRanks = 1024;

int read_number(const std::string& flag, const std::string& text, int least, int most) {
  const auto number = settings::read_integer(text);
  if (!number || *number < least || *number > most) {
    throw UsageError(flag + " is " + (number ? text : quote(text)) + ", wanted " + std::to_string(least) + ".." +
                     std::to_string(most));
  }
  return static_cast<int>(*number);
}

int read_ranks(const Arguments& arguments) {
  const auto text = arguments.flag("-n");
  if (!text) throw UsageError("launch has no -n, wanted the number of ranks", "tandem launch -n 2 COMMAND...");
  return read_number("-n", *text, 1, kMostRanks);
}

constexpr const char* kOnEachNode =
    "on node 1 of 2: tandem launch -n 4 --nodes 2 --node 1 --meet HOST0:29500 COMMAND...";

/// Which of the job's machines this one is.
void set_nodes(launch::AgentOptions& options, const Arguments& arguments) {
  const bool has_nodes = arguments.flag("--nodes").has_value();
  for (const std::string flag : {"--node", "--meet"}) {
    if (arguments.flag(flag).has_value() == has_nodes) continue;
    throw UsageError("launch has " + (has_nodes ? "--nodes and no " + flag : flag + " and no --nodes") +
                         ", wanted --nodes, --node and --meet together",
                     kOnEachNode);
  }
  if (!has_nodes) return;
  options.nodes = read_number("--nodes", *arguments.flag("--nodes"), 1, kMostRanks / options.ranks);
  options.node = read_number("--node", *arguments.flag("--node"), 0, options.nodes - 1);
}

/// Where the ranks of several machines meet: rank 0 serves the store there.
launch::Variables read_place(const std::string& text) {
  const auto place = rendezvous::split_endpoint(text);
  if (!place) {
    const bool has_address = text.find_first_of("[]") != text.npos || std::ranges::count(text, ':') > 1;
    throw UsageError("--meet is " + quote(text) + ", wanted HOST:PORT of node 0",
                     has_address ? "write an IPv6 address in brackets, as in [::1]:29500" : kOnEachNode);
  }
  const auto port = read_number("the port of --meet", place->second, 1, 65535);
  return {
      {"MASTER_ADDR", place->first}, {"MASTER_PORT", std::to_string(port)}, {"TORCHELASTIC_USE_AGENT_STORE", "False"}};
}

std::chrono::milliseconds read_grace(const Arguments& arguments) {
  const auto text = arguments.flag("--grace").value_or("5");
  const auto seconds = settings::read_number(text);
  if (!seconds || *seconds < 0 || *seconds > 86400) {
    throw UsageError("--grace is '" + text + "', wanted seconds, 0..86400");
  }
  return std::chrono::milliseconds(static_cast<int64_t>(*seconds * 1000));
}

/// Sets the file to run: this program itself if the first word is a subcommand.
void set_command(launch::AgentOptions& options, const std::vector<std::string>& words) {
  if (words.empty()) {
    throw UsageError("launch has no command, wanted a program or a subcommand", "tandem launch -n 2 train data=glyphs");
  }
  options.arguments = words;
  if (find_command(words[0])) {
    options.path = "/proc/self/exe";  // opened in the child, which still is a copy of this process
    options.arguments.insert(options.arguments.begin(), "tandem");
    options.hears_stop_signals = hears_stop_signals(words[0]);
    return;
  }
  options.path = launch::find_program(words[0]);
  if (!options.path.empty()) return;
  std::vector<std::string_view> names;
  for (const auto& command : commands()) names.push_back(command.name);
  throw UsageError("command " + quote(words[0]) + " is not found, wanted a program on PATH or a subcommand",
                   did_you_mean(nearest(words[0], names)));
}

/// By default the store would listen on all network interfaces.
rendezvous::Listener listen_at(const std::string& loopback) {
  try {
    return rendezvous::listen_at(loopback, 0);
  } catch (const std::system_error& error) {
    if (refusal_in(error)) throw;
    throw IoError("no port of " + loopback + " can be served", error.code().message());
  }
}

/// Without this many the store could not answer all ranks, which would wait for it. A rank's error has a file too.
void check_descriptors(int ranks) {
  constexpr int kOfTheStore = 16;  // its server's and its client's, and the pipe of a start
  require_descriptors(2 * ranks + kOfTheStore, "launch of " + std::to_string(ranks) + " ranks");
}

}  // namespace

int run_launch(const Arguments& arguments) {
  launch::AgentOptions options;
  options.ranks = read_ranks(arguments);
  options.grace = read_grace(arguments);
  set_nodes(options, arguments);
  const auto place = arguments.flag("--meet");
  if (place) options.environment = read_place(*place);
  set_command(options, arguments.words);
  launch::SignalInbox inbox;  // must be made before the store's threads
  stop_signals::begin();      // a signal after the end of the inbox must not change the status
  // torchrun's variables: every program, in C++ or Python, that runs under torchrun can run here.
  const auto add = [&](const launch::Variables& more) {
    options.environment.insert(options.environment.end(), more.begin(), more.end());
  };
  add({{"TORCHELASTIC_RESTART_COUNT", "0"},
       {"TORCHELASTIC_MAX_RESTARTS", "0"},
       {"TORCHELASTIC_RUN_ID", rendezvous::kOwnRunId}});
  if (place) return launch::run_agent(options, inbox);
  check_descriptors(options.ranks);
  const auto loopback = rendezvous::loopback_address();
  const auto listener = listen_at(loopback);
  const launch::StoreServer store(listener.file, listener.port, loopback);
  add({{"MASTER_ADDR", loopback},
       {"MASTER_PORT", std::to_string(listener.port)},
       {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  return launch::run_agent(options, inbox);
}

}  // namespace tandem::cli
