#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/base/suggest.h"
#include "tandem/cli/command.h"
#include "tandem/job/job.h"
#include "tandem/settings/settings.h"
#include "tandem/storage/named_file.h"

namespace tandem::cli {
namespace {

const Flag kHelp{"--help", "", "this text"};

/// What may have been meant by an unknown flag: one that is near or has the same first letter, a flag with its value in
/// one word, a setting with dashes.
std::string remedy_for_flag(const Command& command, std::string_view name, const std::vector<std::string_view>& flags) {
  for (const auto flag : flags) {
    if (name.starts_with(flag) && name.substr(flag.size()).starts_with(' ')) {
      return "write the flag and its value as two words";
    }
  }
  if (const auto near = nearest(name, flags); !near.empty()) return did_you_mean(near);
  for (const auto flag : flags) {
    if (name.size() == 2 && flag.starts_with("--" + std::string(1, name[1]))) return did_you_mean({std::string(flag)});
  }
  const auto similar = settings::similar_keys(schema_of(command), name);
  if (similar.size() == 1) return "settings have no dashes, write " + similar.front() + "=...";
  return similar.empty() ? "" : "settings have no dashes, " + did_you_mean(similar);
}

const Flag& require_flag(const Command& command, std::string_view name) {
  if (name == kHelp.name || name == "-h") return kHelp;
  std::vector<std::string_view> names{kHelp.name};
  for (const auto& flag : command.flags) {
    if (flag.name == name) return flag;
    names.push_back(flag.name);
  }
  throw UsageError("flag " + quote(name) + " is unknown, wanted " + one_of({names.begin(), names.end()}),
                   remedy_for_flag(command, name, names));
}

std::string missing_value(const Flag& flag) {
  return "flag " + std::string(flag.name) + " has no value, wanted " + std::string(flag.value);
}

/// Reads one flag and its value. Leaves `at` on the last word that belongs to the flag.
void read_flag(const Command& command, std::span<const std::string> words, size_t& at, Arguments& arguments) {
  const std::string_view word = words[at];
  const auto equals = word.find('=');
  const auto& flag = require_flag(command, word.substr(0, equals));
  std::string value;
  if (flag.value.empty()) {
    if (equals != word.npos) throw UsageError("flag " + std::string(flag.name) + " has a value, wanted none");
  } else if (equals != word.npos) {
    value = word.substr(equals + 1);
  } else {
    if (at + 1 == words.size()) throw UsageError(missing_value(flag));
    value = words[++at];
    const bool is_flag =
        value == kHelp.name || std::ranges::find(command.flags, value, &Flag::name) != command.flags.end();
    if (is_flag) throw UsageError(missing_value(flag));
  }
  if (!flag.value.empty() && value.empty()) throw UsageError(missing_value(flag));
  arguments.flags[std::string(flag.name)] = value;
}

/// Rejects what is no word of any subcommand: an empty one, a flag without its dashes, a settings file without its
/// flag.
void check_word(const Command& command, const std::string& word) {
  const auto wanted = ", wanted " + std::string(command.words);
  if (word.empty()) throw UsageError("argument '' is empty" + wanted, "a variable of the shell may be unset");
  const auto schema = schema_of(command);
  if (schema.empty() || command.words.find("key=value") == command.words.npos) return;
  const auto key = word.substr(0, word.find('='));
  const auto is_named = [&](const Flag& flag) { return flag.name == "--" + key; };
  if (key.size() < word.size() && settings::find_setting(schema, key) == nullptr &&
      std::ranges::any_of(command.flags, is_named)) {
    throw UsageError("argument " + quote(word) + " is a flag without its dashes" + wanted,
                     "write --" + printable(word, 120));
  }
  if (key.size() == word.size() && word.ends_with(".toml") &&
      std::ranges::find(command.flags, "--config", &Flag::name) != command.flags.end()) {
    throw UsageError("argument " + quote(word) + " is neither a flag nor key=value" + wanted,
                     "did you mean --config " + printable(word, 120) + "?");
  }
}

}  // namespace

std::optional<std::string> Arguments::flag(std::string_view name) const {
  const auto found = flags.find(name);
  if (found == flags.end()) return std::nullopt;
  return found->second;
}

Arguments read_arguments(const Command& command, std::span<const std::string> words) {
  Arguments arguments;
  size_t at = 0;
  for (; at < words.size(); ++at) {
    if (words[at] == "--") {
      ++at;
      break;
    }
    if (words[at].starts_with("-")) {
      read_flag(command, words, at, arguments);
    } else if (command.ends_at_word) {
      break;
    } else {
      check_word(command, words[at]);
      arguments.words.push_back(words[at]);
    }
  }
  arguments.words.insert(arguments.words.end(), words.begin() + at, words.end());
  return arguments;
}

void load_settings(settings::Settings& settings, const std::filesystem::path& file) {
  constexpr uint64_t kLargest = 1 << 20;
  settings.load_toml(storage::read_named_file("settings file", file, kLargest), file.string());
}

settings::Settings read_settings(const Arguments& arguments) {
  settings::Settings settings(job::schema());
  if (const auto path = arguments.flag("--config")) load_settings(settings, *path);
  settings.apply(arguments.words);
  return settings;
}

}  // namespace tandem::cli
