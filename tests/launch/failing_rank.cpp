#include <ATen/ATen.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tandem/base/error.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/run_main.h"
#include "tandem/comm/world.h"

// A job of two ranks in which rank 1 fails, leaves the group, and ends when launch has seen the end of rank 0.
namespace {

using namespace tandem;

/// Lets the unwinding of rank 1 last until the process has gone.
struct WaitForEnd {
  int64_t process = 0;
  ~WaitForEnd() {
    while (process != 0 && std::filesystem::exists("/proc/" + std::to_string(process))) usleep(10'000);
  }
};

}  // namespace

int main() {
  return comm::run_main([] {
    WaitForEnd end;
    comm::run_world(2, [&](comm::ProcessGroup& group) {
      const auto processes = comm::all_gather(at::full({1}, getpid(), at::kLong), group);
      if (group.rank() == 1) {
        end.process = processes[0].item<int64_t>();
        throw DataError("the data of this rank are bad");
      }
      comm::barrier(group);
    });
  });
}
