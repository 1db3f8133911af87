#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "tandem/cli/program.h"
#include "tandem/cli/stop_signals.h"
#include "tandem/comm/run_main.h"
#include "tandem/launch/stop_rule.h"

namespace {

/// If the caller has closed a standard stream, the next file to be opened would get its number, and text for the stream
/// would land in the file.
void open_missing_streams() {
  for (int stream = 0; stream <= 2; ++stream) {
    if (fcntl(stream, F_GETFD) == -1) open("/dev/null", stream == 0 ? O_RDONLY : O_WRONLY);
  }
}

/// The loader calls this before the initialisers of all libraries. libtorch's initialisers take a quarter of a second,
/// in which a stop signal would otherwise end the process without a message.
void before_main(int argc, char** argv, char**) {
  tandem::comm::watch_uncaught();
  if (argc > 1 && tandem::cli::hears_stop_signals(argv[1])) tandem::cli::stop_signals::hear();
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const run_before_main)(int, char**, char**) = before_main;

}  // namespace

int main(int argc, char** argv) {
  open_missing_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error to report, not the end of the process
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  return tandem::cli::run_program(words);
}
