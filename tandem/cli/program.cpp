#include "tandem/cli/program.h"

#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "tandem/base/cpu.h"
#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/base/suggest.h"
#include "tandem/cli/result.h"
#include "tandem/cli/stop_signals.h"
#include "tandem/comm/run_main.h"
#include "tandem/job/job.h"
#include "tandem/settings/settings.h"

namespace tandem::cli {
namespace {

int print_text(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return 0;
}

const Command& require_command(const std::string& name) {
  if (const auto* command = find_command(name)) return *command;
  const bool is_flag = name.starts_with("-");
  std::vector<std::string_view> flags{"--help", "--version"}, subcommands;
  std::string remedy;
  for (const auto& command : commands()) {
    subcommands.push_back(command.name);
    const bool is_its =
        std::ranges::any_of(command.flags, [&](const Flag& flag) { return name.starts_with(flag.name); });
    if (is_its || (!is_flag && name.find('=') != name.npos))
      remedy = "write the subcommand first: tandem train " + name;
  }
  const auto& names = is_flag ? flags : subcommands;
  if (remedy.empty()) remedy = did_you_mean(nearest(name, names));
  if (remedy.empty()) remedy = did_you_mean(nearest(name, subcommands));
  throw UsageError(std::string(is_flag ? "flag " : "subcommand ") + quote(name) + " is unknown, wanted " +
                       one_of({names.begin(), names.end()}),
                   remedy);
}

/// The words of `tandem train --help train.lr` that are topics of the help: not its settings, nor words that are no
/// keys in a subcommand without settings.
std::vector<std::string> topics_of(const Command& command, const std::vector<std::string>& words) {
  std::vector<std::string> topics{std::string(command.name)};
  if (schema_of(command).empty() || !command.words.starts_with("key=")) return topics;
  std::ranges::copy_if(words, std::back_inserter(topics), [](const auto& word) { return word.find('=') == word.npos; });
  return topics;
}

int dispatch(std::span<const std::string> words) {
  if (words.empty()) {
    std::fputs(help_text().c_str(), stderr);
    return static_cast<int>(ExitCode::usage);
  }
  const auto& name = words[0];
  const auto rest = words.subspan(1);
  if (name == "help" || name == "--help" || name == "-h") return print_text(help_text(rest));
  if (name == "--version") return print_text("tandem " + version() + " (torch " + torch_version() + ")\n");
  const auto& command = require_command(name);
  if (!rest.empty() && rest[0] == "help") {
    std::vector<std::string> topics(words.begin(), words.end());
    topics.erase(topics.begin() + 1);
    return print_text(help_text(topics));
  }
  const auto arguments = read_arguments(command, rest);
  if (arguments.flag("--help")) return print_text(help_text(topics_of(command, arguments.words)));
  check_output_files(command, arguments);
  return command.run(arguments);
}

}  // namespace

int run_program(std::span<const std::string> words) {
  const auto body = [&]() -> int {
    try {
      cpu::chosen();  // a wrong TANDEM_CPU is an error here, before any work
      const int status = dispatch(words);
      flush_stdout();
      return status;
    } catch (...) {
      stop_signals::begin();  // a later signal must not change the exit status of the failure
      throw;
    }
  };
  return comm::run_main(body, stop_signals::requested);
}

}  // namespace tandem::cli
