#pragma once
#include <c10/core/Device.h>

#include <chrono>

#include "tandem/comm/transport.h"
#include "tandem/parallel/strategy.h"

namespace tandem::job {

/// The ranks that train together, where they compute, how they share the work, and how long they wait for each other.
struct Parallel {
  int ranks = 1;                              // of the whole job: its world
  int threads = 0;                            // of a rank; 0: base/cores.h says
  c10::Device device = c10::DeviceType::CPU;  // no index: the current one of its kind
  const parallel::Strategy* strategy = nullptr;
  parallel::StrategyOptions strategy_options;
  int shard = 0, tensor = 1,
      pipeline = 1;       // ranks along these axes, as mesh() has them; shard 0: as the strategy has it
  bool is_async = false;  // ranks do not meet in a step, and the head must be whole (HeadForm::is_whole)
  std::chrono::milliseconds init_timeout{}, timeout{};
  bool check = false;                                   // of every collective call
  bool sockets = false;                                 // between processes, also on one host
  comm::Transport transport = comm::Transport::memory;  // what the ranks will use; known when they have met

  /// The parts into which a batch is cut: one a rank, or one a replica of a strategy whose replicas are in one process.
  int parts() const { return strategy->is_one_process ? strategy_options.dp.replicas : ranks; }

  /// How so many ranks are arranged; axes along which the strategy's ranks cannot stand have one. Throws SettingsError
  /// if their number does not fit.
  parallel::MeshSizes mesh(int of_ranks) const;

  /// How those of them that share a batch do so.
  parallel::Shares shares(int of_ranks) const;

  /// How many ranks share a batch.
  int batch_ranks() const { return mesh(ranks).size(parallel::kBatchAxes); }

  /// A rank of so many, among those that share a batch.
  parallel::RankOfBatch rank_of_batch(int rank, int of_ranks) const;
};

}  // namespace tandem::job
