#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "tandem/cli/program.h"

namespace {

/// A standard stream that the caller closed would give its number to the next file, and text would land in it.
void open_missing_streams() {
  for (int stream = 0; stream <= 2; ++stream) {
    if (fcntl(stream, F_GETFD) == -1) open("/dev/null", stream == 0 ? O_RDONLY : O_WRONLY);
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_missing_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error to report, not the end of the process
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  return tandem::cli::run_program(words);
}
