#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/base/suggest.h"
#include "tandem/base/terminal.h"
#include "tandem/cli/program.h"
#include "tandem/job/job.h"
#include "tandem/settings/settings.h"

namespace tandem::cli {
namespace {

constexpr size_t kLeast = 40, kUsual = 80;

/// Columns for a help text on stdout.
size_t columns() {
  const char* wanted = std::getenv("COLUMNS");
  int number = wanted != nullptr ? std::atoi(wanted) : 0;
  if (number <= 0) number = terminal_columns(STDOUT_FILENO);
  return number > 0 ? std::max(static_cast<size_t>(number), kLeast) : kUsual;
}

/// "  term    meaning", with the meaning's further lines below its first.
std::string help_line(std::string_view term, std::string_view doc, size_t width) {
  const size_t indent = 2 + std::max(width, term.size() + 1);
  auto text = wrapped(doc, columns(), indent);
  text.replace(2, term.size(), term);
  return text;
}

std::string help_line(const Flag& flag) {
  std::string term(flag.name);
  if (!flag.value.empty()) term.append(" ").append(flag.value);
  return help_line(term, flag.doc, 18);
}

/// The settings that a topic names: a setting, or all of a section.
std::string help_on(settings::Schema schema, std::string_view topic) {
  const auto* setting = settings::find_setting(schema, topic);
  const auto key = setting != nullptr ? setting->key : topic;
  std::string text;
  for (const auto& one : schema) {
    const bool is_within = one.key.starts_with(key) && one.key.substr(key.size()).starts_with('.');
    if (one.key == key || is_within) text += settings::describe({&one, 1}, columns());
  }
  return text;
}

[[noreturn]] void fail(settings::Schema schema, std::string_view topic, bool is_first) {
  std::vector<std::string> near;
  if (is_first) {
    std::vector<std::string_view> names{"settings"};
    for (const auto& command : commands()) names.push_back(command.name);
    near = nearest(topic, names);
  }
  if (near.empty()) near = settings::similar_keys(schema, topic);
  throw UsageError(
      "help topic " + quote(topic) + " is unknown, wanted " + (is_first ? "a subcommand, " : "") +
          "a setting or a section of settings",
      near.empty() ? "tandem help lists the subcommands, tandem help settings the settings" : did_you_mean(near));
}

/// "tandem help bench NAME [SETTING...]".
std::string help_on_bench(std::span<const std::string> topics) {
  const auto schema = bench_schema(topics[0]);
  if (!schema) {
    throw UsageError("help topic " + quote(topics[0]) + " is no benchmark", "tandem help bench lists them");
  }
  if (topics.size() == 1) {
    return "Usage: tandem bench " + topics[0] + " [key=value...]\n\nSettings (key, default, meaning):\n" +
           settings::describe(*schema, columns());
  }
  std::string text;
  for (const auto& topic : topics.subspan(1)) {
    const auto found = help_on(*schema, topic);
    if (found.empty()) fail(*schema, topic, false);
    text += found;
  }
  return text;
}

}  // namespace

settings::Schema schema_of(const Command& command) {
  const bool on_settings = std::ranges::any_of(command.flags, [](const Flag& flag) { return flag.name == "--config"; });
  return on_settings && command.settings.empty() ? job::schema() : command.settings;
}

std::string help_text(std::span<const std::string> topics) {
  if (topics.empty()) return help_text();
  const auto* command = find_command(topics[0]);
  const bool is_first = command == nullptr && topics[0] != "settings";
  auto rest = is_first ? topics : topics.subspan(1);
  if (command != nullptr && command->run == run_bench && !rest.empty()) return help_on_bench(rest);
  const auto schema = command != nullptr ? schema_of(*command) : job::schema();
  if (rest.empty()) return command != nullptr ? help_text(*command) : settings::describe(schema, columns());
  std::string text;
  for (const auto& topic : rest) {
    const auto found = help_on(schema, topic);
    if (found.empty()) fail(schema, topic, is_first);
    text += found;
  }
  return text;
}

std::string help_text() {
  std::string text = "Usage: tandem SUBCOMMAND [FLAGS] [key=value...]\n\nSubcommands:\n";
  for (const auto& command : commands()) text += help_line(command.name, command.doc, 10);
  text +=
      help_line("help", "this text; help SUBCOMMAND; help SETTING, such as help train.lr; help settings lists all", 10);
  text += "\nFlags:\n";
  text += help_line({"--version", "", "show the versions"});
  return text + help_line({"--help", "", "this text"});
}

std::string help_text(const Command& command) {
  std::string text = "Usage: tandem " + std::string(command.name) + " [FLAGS]";
  if (!command.words.empty()) text.append(" ").append(command.words);
  text += "\n\n" + wrapped(command.doc, columns(), 2) + "\nFlags:\n";
  for (const auto& flag : command.flags) text += help_line(flag);
  text += help_line({"--help", "", "this text"});
  const auto schema = schema_of(command);
  if (!schema.empty()) text += "\nSettings (key, default, meaning):\n" + settings::describe(schema, columns());
  return text;
}

}  // namespace tandem::cli
