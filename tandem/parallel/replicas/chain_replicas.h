#pragma once
#include <memory>

#include "tandem/memory/block_runner.h"
#include "tandem/parallel/replica_threads.h"

namespace tandem::parallel {

/// Runs the blocks of a chain on replicas in this process: the parts of a batch, cut along dim 0 as the ranks of
/// DistributedDataParallel cut it (comm::split_sizes()), each on a thread (parallel_apply()). The blocks, and so
/// weights and buffers, are the same for all: their modules must obey the context's rule for batch statistics, as
/// models' do. In replica i the context is that of ReplicaScope.
///
///   image   input ─┬─ stem ─ layer1 ─ ... ─ fc ─┬─ classifier      a block keeps its name, and what is planned for it
///                  └─ stem ─ layer1 ─ ... ─ fc ─┘
class ChainReplicas : public memory::BlockRunner {
 public:
  /// From now on the blocks of `chain` run on `replicas` replicas, for as long as the object lives. It must outlive the
  /// graphs that they made, and the chain must outlive it. null: there is nothing to run.
  ChainReplicas(memory::Chain* chain, int replicas);
  ~ChainReplicas() override;
  ChainReplicas(const ChainReplicas&) = delete;
  ChainReplicas& operator=(const ChainReplicas&) = delete;

  memory::Flow run(const memory::Chain& blocks, const memory::Flow& input) override;

 private:
  memory::Chain* chain_;
  int replicas_;
  std::unique_ptr<ReplicaThreads> threads_;
};

}  // namespace tandem::parallel
