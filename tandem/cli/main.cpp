#include <csignal>
#include <string>
#include <vector>

#include "tandem/cli/program.h"

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error to report, not the end of the process
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  return tandem::cli::run_program(words);
}
