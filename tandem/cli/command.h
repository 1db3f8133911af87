#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/settings/schema.h"

namespace tandem::settings {
class Settings;
}

namespace tandem::cli {

/// The command line after a subcommand's name.
struct Arguments {
  std::map<std::string, std::string, std::less<>> flags;  // "--json" -> its value, "" for a flag without one
  std::vector<std::string> words;                         // the rest, in order

  std::optional<std::string> flag(std::string_view name) const;
};

struct Flag {
  std::string_view name;   // "--json", "-n"
  std::string_view value;  // name of its value in the help; "" if it takes none
  std::string_view doc;
  bool is_output = false;  // its value is a file that the subcommand writes
};

struct Command {
  std::string_view name, doc;
  std::string_view words;  // "key=value..."
  int (*run)(const Arguments&);
  std::vector<Flag> flags;
  bool ends_at_word = false;       // flags after the first word belong to that word
  settings::Schema settings = {};  // for the help, if they are not those of a job
};

// One source file each. They return the exit status; an exception becomes one line on stderr and its exit code.
int run_train(const Arguments& arguments);
int run_search(const Arguments& arguments);
int run_eval(const Arguments& arguments);
int run_predict(const Arguments& arguments);
int run_embed(const Arguments& arguments);
int run_plan(const Arguments& arguments);
int run_memory(const Arguments& arguments);
int run_reshard(const Arguments& arguments);
int run_diff(const Arguments& arguments);
int run_launch(const Arguments& arguments);
int run_bench(const Arguments& arguments);
int run_doctor(const Arguments& arguments);
int run_info(const Arguments& arguments);

// The settings of those that do not take a job's.
settings::Schema eval_schema();
settings::Schema search_schema();
settings::Schema predict_schema();
settings::Schema embed_schema();
settings::Schema reshard_schema();
settings::Schema diff_schema();

/// The settings of a benchmark; nullopt: there is none of that name.
std::optional<settings::Schema> bench_schema(std::string_view name);

/// All subcommands. A new one is a line here, in commands.cpp.
std::span<const Command> commands();

/// The settings that the subcommand's words may give; empty if there are none, or if they are those of a bench.
settings::Schema schema_of(const Command& command);

/// Returns null if there is no subcommand of that name.
const Command* find_command(std::string_view name);

/// Separates a subcommand's flags from its words. `--flag value` and `--flag=value` are the same; everything after `--`
/// is a word. Throws UsageError for an unknown flag, and for a missing or needless value.
Arguments read_arguments(const Command& command, std::span<const std::string> words);

/// Reads settings from a TOML file of at most 1 MiB, which may be a pipe. Throws IoError, DataError or SettingsError.
void load_settings(settings::Settings& settings, const std::filesystem::path& file);

/// Reads the job's settings from --config and the words.
settings::Settings read_settings(const Arguments& arguments);

}  // namespace tandem::cli
