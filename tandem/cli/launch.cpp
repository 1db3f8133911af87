#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/base/suggest.h"
#include "tandem/cli/command.h"
#include "tandem/cli/stop_signals.h"
#include "tandem/launch/agent.h"
#include "tandem/launch/signal_inbox.h"
#include "tandem/launch/stop_rule.h"
#include "tandem/launch/store_server.h"
#include "tandem/rendezvous/environment.h"
#include "tandem/rendezvous/listen.h"
#include "tandem/settings/value.h"

namespace tandem::cli {
namespace {

constexpr int kMostRanks = 1024;

int read_ranks(const Arguments& arguments) {
  const auto text = arguments.flag("-n");
  if (!text) throw UsageError("launch has no -n, wanted the number of ranks", "tandem launch -n 2 COMMAND...");
  const auto number = settings::read_integer(*text);
  if (!number || *number < 1 || *number > kMostRanks) {
    throw UsageError("-n is " + (number ? *text : quote(*text)) + ", wanted 1.." + std::to_string(kMostRanks));
  }
  return static_cast<int>(*number);
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
rendezvous::Listener listen_here() {
  try {
    return rendezvous::listen_at("127.0.0.1", 0);
  } catch (const std::system_error& error) {
    throw IoError("no port of 127.0.0.1 can be served", error.code().message());
  }
}

}  // namespace

int run_launch(const Arguments& arguments) {
  launch::AgentOptions options;
  options.ranks = read_ranks(arguments);
  options.grace = read_grace(arguments);
  set_command(options, arguments.words);
  launch::SignalInbox inbox;  // must be made before the store's threads
  stop_signals::begin();      // a signal after the end of the inbox must not change the status
  const auto listener = listen_here();
  const launch::StoreServer store(listener.file, listener.port);
  // torchrun's variables: every program, in C++ or Python, that runs under torchrun can run here.
  options.environment = {{"MASTER_ADDR", "127.0.0.1"},
                         {"MASTER_PORT", std::to_string(listener.port)},
                         {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                         {"TORCHELASTIC_RESTART_COUNT", "0"},
                         {"TORCHELASTIC_MAX_RESTARTS", "0"},
                         {"TORCHELASTIC_RUN_ID", rendezvous::kOwnRunId}};
  return launch::run_agent(options, inbox);
}

}  // namespace tandem::cli
