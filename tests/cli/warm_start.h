#pragma once
#include <string>
#include <vector>

#include "tests/support/running.h"

namespace tandem::test {

/// Runs the program in a process that has loaded all libraries already. A process that was forked before the
/// first test, and has done nothing since, forks again for each run: that takes milliseconds, where a start takes 0.3
/// s. Apart from that, the run is a process like any other, with its own memory, working folder and exit status.
Ended run_warm(const std::vector<std::string>& words);

}  // namespace tandem::test
