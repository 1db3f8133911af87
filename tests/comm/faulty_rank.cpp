#include <ATen/ATen.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>

#include "tandem/base/error.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/world.h"

// One process of a job that calls operators a thousand times. faulty_rank FOLDER RANK STEP FAULT: in that step, that
// rank throws, exits, kills itself or stops.
namespace {

using namespace tandem;

void misbehave(const std::string& fault) {
  if (fault == "throw") throw DataError("image 'a.png' is not an image");
  if (fault == "exit") _exit(3);
  raise(fault == "stop" ? SIGSTOP : SIGKILL);
}

void one_step(comm::ProcessGroup& group, int step) {
  const auto x = at::ones({100}) * step;
  switch (step % 4) {
    case 0:
      comm::all_reduce(x, group);
      break;
    case 1:
      comm::reduce_scatter(x, group);
      break;
    case 2:
      comm::all_gather(x, group, 0, std::vector<int64_t>(group.size(), 100));
      break;
    default:
      comm::broadcast(x, step % group.size(), group);
  }
}

}  // namespace

int main(int, char** words) {
  const int rank = std::stoi(words[2]), step = std::stoi(words[3]);
  try {
    comm::WorldOptions options;
    options.timeout = std::chrono::seconds(2);
    options.flight_folder = words[1];
    const auto group = comm::join_world(rendezvous::detect_launch(), options);
    comm::run_recorded(*group, [&](comm::ProcessGroup&) {
      for (int i = 0; i < 1000; ++i) {
        if (i == step && group->rank() == rank) misbehave(words[4]);
        one_step(*group, i);
      }
    });
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", message_of(error).c_str());
    return 1;
  }
}
