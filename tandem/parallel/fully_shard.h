#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "tandem/memory/chain.h"
#include "tandem/parallel/gradient_sync.h"
#include "tandem/parallel/mesh.h"

namespace tandem::parallel {

/// What the ranks of the shard axis divide among them; each row divides what the rows before it divide, too.
enum class Sharded : uint8_t {
  optimizer,   // ZeRO-1: the optimizer's state. Gradients are whole until the last backward of a step has ended
  gradients,   // ZeRO-2: those of a block are whole while backward is in the block
  parameters,  // ZeRO-3, FSDP: those of a block are whole while forward or backward is in the block
};

struct FullyShardOptions {
  int shard = 0;  // ranks among which everything is divided; the others hold copies. 0: all. Must divide the ranks
  /// Sharded::parameters: between forward and backward a block is divided among this many neighbours, which gather it
  /// for backward. 0: among all; 1: it stays whole. Must divide the ranks among which everything is divided.
  int reshard = 0;
  bool prefetch = true;  // Sharded::parameters: the next block is gathered while one runs
  /// Sharded::parameters: the type to which the parameters of two dims or more of each block are rounded when they are
  /// gathered; the block must round them to it before any other use. Gradients and their sums keep their type.
  std::optional<at::ScalarType> gathered = {};
  bool in_order = false;  // gradients are added one rank after the other, micro-batch by micro-batch; without copies
};

/// Each rank holds, and its optimizer updates, one of N equal parts of the replicated parameters. With
/// Sharded::parameters, for a block of the chain:
///
///   forward    all_gather ▶ block ▶ release
///   backward   all_gather ▶ block ▶ release, reduce_scatter ▶ this rank's part of the gradients
///
/// The reduce_scatters run on a thread of their own, through Mesh::group().beside(), while backward goes on: of the
/// whole gradients of two blocks at most, those that backward makes and those that travel. backward() returns when
/// those of all blocks are there, after_backward() when all are. On the same thread, parameters that are always whole
/// arrive after after_step(): a block waits for its own when it runs next. Whoever reads them elsewhere calls wait().
///
/// held() gives the parts: a few boxes of each parameter, views of this rank's shard, whose .grad has the sum over the
/// ranks (of both axes, data and shard). The chain's blocks are replaced while this object lives, and, but with
/// Sharded::optimizer, cannot be cut into parts. Parameters in no block, or without a chain, are always whole, and so
/// are their gradients.
///
/// Between steps, S being the bytes of a type's parameters with each block padded to a multiple of N numbers:
///
///                            parameters   gradients between micro-batches   of the optimizer   sent in a step, all
///                            ranks
///   Sharded::optimizer       S            S, always                         1/N                2 (N - 1) S
///   Sharded::gradients       S            S / N                             1/N                2 (N - 1) S
///   Sharded::parameters      S / N        S / N                             1/N                3 (N - 1) S
///
/// With `reshard` = 1 Sharded::parameters sends 2 (N - 1) S a micro-batch, and every block stays whole until backward
/// has left it; with n neighbours, 2 (N - 1) S + N / n (n - 1) S, and S / n of each block stay. With `gathered`,
/// gathers send numbers of that type, and vectors have a flat of their own, with its own padding. With `prefetch` the
/// parameters of two neighbours are whole at a time; the gathers run on a group of their own, beside those of forward
/// and backward. With K micro-batches Sharded::gradients sends (K + 1) (N - 1) S, and Sharded::parameters 3 K (N - 1)
/// S. In backward there are the whole gradients of two blocks besides. In a group of one nothing is divided, copied or
/// sent.
///
/// With `in_order` the sum of a gradient runs over the ranks of the first micro-batch in their order, then over those
/// of the next, so that its bits do not depend on how many ranks share the micro-batches. Each micro-batch then sends
/// its gradients, also with Sharded::optimizer, which holds 1/N of them besides.
///
/// Where backward leaves gradients of weights for later (memory::WeightWork), those of a block are summed when all of
/// them are there. The block behind one that Block::ends_run is not gathered ahead of time.
///
/// A parameter without a gradient counts as one whose gradient is zero if its block has one. All ranks must run the
/// same blocks in the same order. A block may run several times in a step. While its parameters are released, nothing
/// may read them but their sizes. Backward with create_graph is not supported: it throws c10::Error.
///
/// The parameters of the model remain views of this object's memory; after its end they must not be used with
/// Sharded::parameters. Collective: construction, forward and backward of each block, after_backward(), after_step(),
/// unify(). Source: Rajbhandari et al. 2020, ZeRO (arXiv:1910.02054); Zhao et al. 2023, PyTorch FSDP
/// (arXiv:2304.11277).
class FullyShard : public GradientSync, public SyncRehearsal {
 public:
  /// `parameters`: all replicated ones of the model. `chain`: may be null. The mesh must outlive the object. Takes the
  /// parameters and buffers of rank 0. Throws c10::ValueError: a parameter in two blocks of the chain, listed twice,
  /// whose numbers do not lie next to each other, or trained and empty; copies with in_order.
  FullyShard(const std::vector<Parameter>& parameters, std::vector<Tensor> buffers, memory::Chain* chain, Sharded what,
             Mesh& mesh, const FullyShardOptions& options = {});
  ~FullyShard() override;

  std::vector<Parameter> held(std::vector<Parameter> parameters) const override;
  void before_forward(const MicroBatch& micro) override;
  void before_backward(const Tensor& loss, const MicroBatch& micro = {},
                       flight::Where where = flight::Where::current()) override;
  void after_backward(const MicroBatch& micro) override;
  /// Those that backward has not summed.
  void take_gradients(flight::Where where = flight::Where::current()) override;
  void start_to_take(const std::vector<Tensor>& complete, flight::Where where = flight::Where::current()) override;
  void after_step() override;
  void wait() override;
  void unify(const std::vector<Parameter>& optimizer = {}) override;
  void values_replaced() override;
  Overlap overlap() const override;

  SyncRehearsal* rehearsal() override { return this; }
  SyncMemory memory() override;
  void run_alone(bool is_on) override;

 private:
  struct Impl;

  std::vector<Tensor> owned_gradients() const;

  std::shared_ptr<Impl> impl_;  // also of the chain's blocks
};

}  // namespace tandem::parallel
