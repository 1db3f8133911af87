#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "tandem/memory/chain.h"
#include "tandem/parallel/distributed_data_parallel.h"
#include "tandem/parallel/fully_shard.h"
#include "tandem/parallel/gradient_sync.h"
#include "tandem/parallel/mesh.h"
#include "tandem/parallel/model_averaging.h"
#include "tandem/parallel/parameter_server.h"
#include "tandem/parallel/post_local_sgd.h"
#include "tandem/parallel/replicas/one_process.h"

namespace tandem::parallel {

/// The options of all strategies; each reads its own member.
struct StrategyOptions {
  int64_t shards = 0;  // gradients are summed over so many shards of a batch in their order; 0: over the ranks
  DistributedDataParallelOptions ddp;
  PostLocalSgdOptions post_local_sgd;  // of a hook of ddp that goes apart
  ModelAveragingOptions local_sgd = {.every = 16};
  ModelAveragingOptions diloco = {.every = 50, .outer = OuterNesterov{}};
  ParameterServerOptions ps;
  FullyShardOptions fsdp;
  OneProcessOptions dp;
};

/// A model whose parts the ranks that share a batch hold alike, before a strategy takes it.
struct ReplicatedModel {
  std::vector<Parameter> parameters;  // those that differ along the batch's axes are left to their layers
  std::vector<Tensor> buffers = {};
  /// The blocks that use them, where the model runs them from: a strategy may replace what they run, for as long as it
  /// lives. null: the model has none.
  memory::Chain* chain = nullptr;
};

/// One of the ranks that share a batch.
struct RankOfBatch {
  int rank = 0, size = 1;
};

/// How work is shared among ranks, of which the last `idle` get none.
struct Shares {
  int ranks = 1, idle = 0;

  int workers() const { return ranks - idle; }

  /// How many of n samples, or classes, each rank gets: comm::split_sizes() over the workers.
  std::vector<int64_t> of(int64_t n) const;
};

/// A way to train in parallel: a file with a GradientSync and its options, a member of StrategyOptions, and a row of
/// strategies().
struct Strategy {
  std::string_view name;   // as the setting `parallel` spells it
  std::string_view title;  // in words, for messages
  std::string_view doc;    // what each rank holds, for the settings' table

  /// How `ranks` ranks that share a batch are arranged for it. Throws SettingsError for a number that it cannot use.
  /// The ranks along the axis shard hold different parts of the replicated parameters, or of their optimizer's state.
  MeshSizes (*mesh)(int ranks, const StrategyOptions& options);

  /// Makes the strategy for a model whose batches the ranks of mesh.batch() share. The mesh, and what `model` refers
  /// to, must outlive the result. Collective.
  std::unique_ptr<GradientSync> (*make)(const ReplicatedModel& model, Mesh& mesh, const StrategyOptions& options);

  /// The first word of the names of the settings that only this strategy reads, such as "ddp"; "": there are none.
  std::string_view settings = "";

  /// With default options every step is one of the whole batch, and equals one device's. Otherwise the ranks train
  /// apart for some steps (GradientSync::is_synchronous() tells of which), and are one model after unify().
  bool is_synchronous = true;

  /// Sets the options with which the ranks meet in every step, which is then one of the whole batch too. null: they
  /// always do.
  void (*meet_each_step)(StrategyOptions& options) = nullptr;

  /// The axes along which a mesh may have several ranks; along shard as many as fsdp.shard of the options says.
  Axes axes = {Axis::data, Axis::tensor, Axis::pipeline};

  /// What the ranks that share a batch divide among them; nothing: each holds all.
  std::optional<Sharded> divides = {};

  bool sums_in_order = false;    // it can: StrategyOptions::shards
  bool takes_gradients = false;  // it can: GradientSync::take_gradients()

  /// Between steps each rank holds all parameters, with the whole of the optimizer's state.
  bool has_whole_state = false;

  /// True: the ranks that share a batch are replicas in one process, `dp.replicas` of the options, and the world is one
  /// rank.
  bool is_one_process = false;

  /// How many of the ranks that share a batch, the last ones, get no part of it. null: none.
  int (*idle)(const StrategyOptions& options) = nullptr;

  /// How `ranks` ranks share what there is to do.
  Shares shares(int ranks, const StrategyOptions& options) const {
    return {ranks, idle != nullptr ? idle(options) : 0};
  }
};

/// All strategies; the first is the default.
std::span<const Strategy> strategies();

/// Throws SettingsError (unknown name), naming `parallel`.
const Strategy& strategy_of(std::string_view name);

}  // namespace tandem::parallel
