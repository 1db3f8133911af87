#pragma once
#include <c10/core/Device.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "tandem/comm/process_group.h"
#include "tandem/rendezvous/environment.h"

namespace tandem::comm {

struct WorldOptions {
  std::chrono::milliseconds init_timeout{300'000};  // for all ranks to arrive
  std::chrono::milliseconds timeout{120'000};       // for one operation
  int threads = 0;                                  // intra-op threads of a rank; 0: see below
  std::optional<Transport> transport = {};          // default: the fastest; segments and sockets on threads: for tests
  bool check = false;                               // see ProcessGroup::set_check()
  std::function<bool()> stop_requested = {};        // polled while processes wait for each other
  std::filesystem::path flight_folder = {};         // see FlightRecorder::set_folder(); empty: not set
  c10::Device device = c10::DeviceType::CPU;        // the current device of the ranks; see below
};

// With 0 threads a rank has OMP_NUM_THREADS if it is set, and else its part of the cores: those that it may use, each
// divided among the ranks that may use it too (see share_of_cores). The 1 that torchrun sets by itself does not count.

// Thread-ranks take the GPUs in turn if `device` has no index, and share those that are too few. Each has a stream of
// its own as its current one, and a thread of its own in backward (base/autograd_engine.h). Of processes, the one with
// local rank r takes GPU r, or shares in turn. Without `device`, what threads of a group do for CUDA tensors shares the
// default stream, and thread-ranks must not differentiate collectives of tensors on one GPU.

/// Runs `body`. If it throws, the error is written to the rank's flight record, unless it is Interrupted, and rethrown.
/// run_ranks() does this itself.
void run_recorded(ProcessGroup& group, const std::function<void(ProcessGroup&)>& body);

/// Runs `body` on n thread-ranks of this process and returns when all have ended.
///
/// This function and join_world() call watch_uncaught() (run_main.h): from then on an exception that nothing catches
/// ends the program with one line.
///
/// If a rank throws, operations in which other ranks wait are aborted, and the first exception is rethrown here with
/// its rank in the text (rethrow_with_rank). Throws c10::ValueError if n < 1.
void run_ranks(int n, const std::function<void(ProcessGroup&)>& body, const WorldOptions& options = {});

/// Connects all processes that a launcher started (torchrun, srun, mpirun, `tandem launch`), as process_connect() does,
/// and returns their group; without a launcher, a group of one. `launch` defaults to what this process's environment
/// says. Must be called in every process. Throws SettingsError for wrong environment variables, c10::DistError if a
/// process does not come within init_timeout, Interrupted if stop_requested() returns true.
std::unique_ptr<ProcessGroup> join_world(const std::optional<rendezvous::Launch>& launch = rendezvous::detect_launch(),
                                         const WorldOptions& options = {});

/// Runs `body` on the ranks of the world: if a launcher started several processes, on the one rank that this process is
/// (join_world(), run_recorded()); else on n thread-ranks (run_ranks()). One program then runs both ways. An exception
/// of a rank is rethrown with its rank in the text. Throws as the functions above.
void run_world(int n, const std::function<void(ProcessGroup&)>& body, const WorldOptions& options = {});

}  // namespace tandem::comm
