#pragma once
#include <span>
#include <string>

#include "tandem/cli/command.h"

namespace tandem::cli {

/// Runs the program with the words after its name: `{"train", "data=glyphs"}`. Returns the exit status; throws nothing.
int run_program(std::span<const std::string> words);

/// The texts of "tandem help" and "tandem help NAME".
std::string help_text();
std::string help_text(const Command& command);

/// The version of Tandem ("0.1.0"), and that of the libtorch it was built with.
std::string version();
std::string torch_version();

}  // namespace tandem::cli
