#pragma once
#include "tests/support/running.h"

namespace tandem::test {

/// The command that runs build/tandem with these words.
std::vector<std::string> tandem_command(const std::vector<std::string>& words);

/// Runs the program as a process of its own; see warm_start.h.
Ended run_tandem(const std::vector<std::string>& words, const Environment& environment = {});

/// The program's code in this process: quicker, for words that start no other process.
Ended run_here(const std::vector<std::string>& words);

}  // namespace tandem::test
