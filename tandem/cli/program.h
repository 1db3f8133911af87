#pragma once
#include <span>
#include <string>

#include "tandem/cli/command.h"

namespace tandem::cli {

/// Runs the program with the words after its name: `{"train", "data=glyphs"}`. Returns the exit status; throws nothing.
int run_program(std::span<const std::string> words);

/// The text of "tandem help TOPIC...", as wide as the terminal: a subcommand, "settings", a setting or a section of
/// settings; after a subcommand, settings and sections. Throws UsageError for an unknown topic.
std::string help_text(std::span<const std::string> topics);
std::string help_text();  // of "tandem help"
std::string help_text(const Command& command);

/// The version of Tandem ("0.1.0"), and that of the libtorch it was built with.
std::string version();
std::string torch_version();

}  // namespace tandem::cli
