#include "tests/cli/run_command.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>

#include "tandem/cli/program.h"
#include "tests/cli/warm_start.h"

namespace tandem::test {

std::vector<std::string> tandem_command(const std::vector<std::string>& words) {
  const char* path = std::getenv("TANDEM_PROGRAM");
  if (path == nullptr) throw std::runtime_error("TANDEM_PROGRAM is not set: run the tests with ctest");
  std::vector<std::string> command = {path};
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

Ended run_tandem(const std::vector<std::string>& words, const Environment& environment) {
  // Libraries read some variables when they are loaded, and launch may start the program's own file.
  const bool is_cold = !environment.empty() || words.empty() || words[0] == "launch";
  return is_cold ? run_command(tandem_command(words), environment) : run_warm(words);
}

Ended run_here(const std::vector<std::string>& words) {
  Ended ended;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  ended.status = cli::run_program(words);
  ended.out = ::testing::internal::GetCapturedStdout();
  ended.err = ::testing::internal::GetCapturedStderr();
  return ended;
}

}  // namespace tandem::test
