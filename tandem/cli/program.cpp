#include "tandem/cli/program.h"

#include <cstdio>
#include <cstdlib>

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

int print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return 0;
}

const Command& require_command(const std::string& name) {
  if (const auto* command = find_command(name)) return *command;
  std::vector<std::string_view> names;
  for (const auto& command : commands()) names.push_back(command.name);
  const auto kind = name.starts_with("-") ? "flag" : "subcommand";
  throw UsageError(
      std::string(kind) + " " + quote(name) + " is unknown, wanted " + one_of({names.begin(), names.end()}),
      did_you_mean(nearest(name, names)));
}

int help(std::span<const std::string> words) {
  if (words.empty()) return print(help_text());
  if (words[0] == "settings") return print(settings::describe(job::schema()));
  return print(help_text(require_command(words[0])));
}

int dispatch(std::span<const std::string> words) {
  if (words.empty()) {
    std::fputs(help_text().c_str(), stderr);
    return static_cast<int>(ExitCode::usage);
  }
  const auto& name = words[0];
  const auto rest = words.subspan(1);
  if (name == "help" || name == "--help" || name == "-h") return help(rest);
  if (name == "--version") return print("tandem " + version() + " (torch " + torch_version() + ")\n");
  const auto& command = require_command(name);
  const auto arguments = read_arguments(command, rest);
  if (arguments.flag("--help")) return print(help_text(command));
  check_output_files(command, arguments);
  return command.run(arguments);
}

std::string help_line(std::string_view term, std::string_view doc, size_t width) {
  std::string line("  ");
  line.append(term).append(width > term.size() ? width - term.size() : 1, ' ').append(doc).append("\n");
  return line;
}

std::string help_line(const Flag& flag) {
  std::string term(flag.name);
  if (!flag.value.empty()) term.append(" ").append(flag.value);
  return help_line(term, flag.doc, 18);
}

}  // namespace

int run_program(std::span<const std::string> words) {
  const auto body = [&]() -> int {
    try {
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

std::string help_text() {
  std::string text = "Usage: tandem SUBCOMMAND [FLAGS] [key=value...]\n\nSubcommands:\n";
  for (const auto& command : commands()) text += help_line(command.name, command.doc, 10);
  text += help_line("help", "this text; help SUBCOMMAND; help settings lists the settings", 10);
  text += "\nFlags:\n";
  text += help_line({"--version", "", "show the versions"});
  return text + help_line({"--help", "", "this text"});
}

std::string help_text(const Command& command) {
  std::string text = "Usage: tandem " + std::string(command.name) + " [FLAGS]";
  if (!command.words.empty()) text.append(" ").append(command.words);
  text.append("\n\n  ").append(command.doc).append("\n\nFlags:\n");
  for (const auto& flag : command.flags) text += help_line(flag);
  text += help_line({"--help", "", "this text"});
  const bool on_settings = std::ranges::any_of(command.flags, [](const Flag& flag) { return flag.name == "--config"; });
  const auto schema = on_settings ? job::schema() : command.settings;
  if (!schema.empty()) text += "\nSettings (key, default, meaning):\n" + settings::describe(schema);
  return text;
}

}  // namespace tandem::cli
