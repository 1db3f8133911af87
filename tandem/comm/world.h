#pragma once
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
  int threads = 0;                                  // intra-op threads of a rank; 0: max(1, cores / ranks on this host)
  bool gloo = false;                                // thread-ranks only: sockets instead of shared memory
  bool check = false;                               // see ProcessGroup::set_check
  std::function<bool()> stop_requested = {};        // asked while processes wait for each other to come
  std::filesystem::path flight_folder = {};         // see FlightRecorder::set_folder; empty: not yet
};

/// Runs `body`; whatever it throws is written into the rank's flight record first. run_ranks() does this itself.
void run_recorded(ProcessGroup& group, const std::function<void(ProcessGroup&)>& body);

/// Runs `body` on n thread-ranks of this process and returns when all have ended.
///
/// When a rank throws, the others are released from whatever operation they wait in, and the first exception is thrown
/// here with its rank in the text (rethrow_with_rank). Throws c10::ValueError when n < 1.
void run_ranks(int n, const std::function<void(ProcessGroup&)>& body, const WorldOptions& options = {});

/// The group of all processes that a launcher started (torchrun, srun, mpirun, `tandem launch`), on Gloo; a group of
/// one when there is no launcher. `launch` defaults to what this process's environment says. Collective over the
/// processes. Throws SettingsError (variables), c10::DistError (a process does not come within init_timeout),
/// Interrupted (stop_requested).
std::unique_ptr<ProcessGroup> join_world(const std::optional<rendezvous::Launch>& launch = rendezvous::detect_launch(),
                                         const WorldOptions& options = {});

}  // namespace tandem::comm
