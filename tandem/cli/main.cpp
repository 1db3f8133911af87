#include <string>
#include <vector>

#include "tandem/cli/program.h"

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  return tandem::cli::run_program(words);
}
