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

const Flag& require_flag(const Command& command, std::string_view name) {
  if (name == kHelp.name || name == "-h") return kHelp;
  std::vector<std::string_view> names{kHelp.name};
  for (const auto& flag : command.flags) {
    if (flag.name == name) return flag;
    names.push_back(flag.name);
  }
  const std::vector<std::string> known(names.begin(), names.end());
  throw UsageError("flag " + quote(name) + " is unknown, wanted " + one_of(known), did_you_mean(nearest(name, names)));
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
  }
  if (!flag.value.empty() && value.empty()) throw UsageError(missing_value(flag));
  arguments.flags[std::string(flag.name)] = value;
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
      if (words[at].empty()) {
        throw UsageError("argument '' is empty, wanted " + std::string(command.words),
                         "a variable of the shell may be unset");
      }
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
