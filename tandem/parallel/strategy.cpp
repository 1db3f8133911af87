#include "tandem/parallel/strategy.h"

#include <algorithm>
#include <array>

#include "tandem/base/error.h"
#include "tandem/comm/split.h"
#include "tandem/parallel/ordered_data_parallel.h"
#include "tandem/parallel/updating_servers.h"

namespace tandem::parallel {
namespace {

MeshSizes along_data(int ranks, const StrategyOptions&) { return {.data = ranks}; }

/// The parameters that the ranks which share a batch hold alike.
std::vector<Parameter> shared_of(const ReplicatedModel& model) {
  auto parameters = model.parameters;
  std::erase_if(parameters,
                [](const Parameter& parameter) { return !parameter.placement.is_replicated_along(kBatchAxes); });
  return parameters;
}

std::unique_ptr<GradientSync> make_ddp(const ReplicatedModel& model, Mesh& mesh, const StrategyOptions& options) {
  const auto shared = shared_of(model);
  if (options.shards > 0) {
    return std::make_unique<OrderedDataParallel>(shared, model.buffers, mesh.batch(),
                                                 options.ddp.find_unused_parameters || options.ddp.static_graph);
  }
  if (options.ddp.hook_kind().goes_apart && mesh.batch().size() > 1) {
    return std::make_unique<PostLocalSgd>(shared, model.buffers, mesh.batch(), options.ddp, options.post_local_sgd);
  }
  return std::make_unique<DistributedDataParallel>(tensors_of(shared), model.buffers, names_of(shared), mesh.batch(),
                                                   options.ddp);
}

std::unique_ptr<GradientSync> make_ps(const ReplicatedModel& model, Mesh& mesh, const StrategyOptions& options) {
  if (options.ps.servers_update) {
    return std::make_unique<UpdatingServers>(shared_of(model), model.buffers, mesh.batch(), options.ps);
  }
  return std::make_unique<ParameterServer>(shared_of(model), model.buffers, mesh.batch(), options.ps);
}

MeshSizes with_servers(int ranks, const StrategyOptions& options) {
  check_servers(options.ps.servers, ranks);
  return options.ps.servers_update ? MeshSizes{.shard = ranks} : MeshSizes{.data = ranks};
}

int servers_apart(const StrategyOptions& options) { return options.ps.servers; }

MeshSizes one_rank(int ranks, const StrategyOptions&) {
  if (ranks == 1) return {};
  throw SettingsError("parallel is dp with " + std::to_string(ranks) +
                          " ranks in the world, wanted 1, whose replicas are threads of its process",
                      "use parallel=ddp");
}

std::unique_ptr<GradientSync> make_dp(const ReplicatedModel& model, Mesh& mesh, const StrategyOptions& options) {
  return std::make_unique<OneProcessReplicas>(make_ddp(model, mesh, options), model.chain, options.dp);
}

template <ModelAveragingOptions StrategyOptions::*own>
std::unique_ptr<GradientSync> make_averaging(const ReplicatedModel& model, Mesh& mesh, const StrategyOptions& options) {
  return std::make_unique<ModelAveraging>(shared_of(model), model.buffers, mesh.batch(), options.*own);
}

/// An outer step of length 1 without momentum leads to the mean.
template <ModelAveragingOptions StrategyOptions::*own>
void average_each_step(StrategyOptions& options) {
  auto& averaging = options.*own;
  averaging.every = 1;
  if (averaging.outer) averaging.outer = OuterNesterov{.learning_rate = 1, .momentum = 0};
}

constexpr auto kLocalSgd = &StrategyOptions::local_sgd;
constexpr auto kDiloco = &StrategyOptions::diloco;

/// Ranks among which the parameters are divided; the others hold copies.
MeshSizes along_both(int ranks, const StrategyOptions& options) {
  const int shard = options.fsdp.shard == 0 ? ranks : options.fsdp.shard;
  if (shard < 1 || ranks % shard != 0) {
    throw SettingsError("shard is " + std::to_string(shard) + " with " + std::to_string(ranks) +
                            (ranks == 1 ? " rank" : " ranks") + ", wanted a number that divides them",
                        "set shard=0 to divide the parameters among all ranks");
  }
  return {.data = ranks / shard, .shard = shard};
}

/// The same; blocks may be gathered from some neighbours.
MeshSizes with_neighbours(int ranks, const StrategyOptions& options) {
  const auto sizes = along_both(ranks, options);
  const int neighbours = options.fsdp.reshard, shard = sizes.shard;
  if (neighbours > 1 && shard % neighbours != 0) {
    throw SettingsError("reshard is " + std::to_string(neighbours) + " with " + std::to_string(shard) +
                            (shard == 1 ? " rank" : " ranks") +
                            " among which the parameters are divided, wanted a number that divides them",
                        "set reshard=true to divide a block among all of them");
  }
  return sizes;
}

template <Sharded what>
std::unique_ptr<GradientSync> make_sharded(const ReplicatedModel& model, Mesh& mesh, const StrategyOptions& options) {
  auto own = options.fsdp;
  own.in_order = options.shards > 0;
  return std::make_unique<FullyShard>(shared_of(model), model.buffers, model.chain, what, mesh, own);
}

constexpr std::array<Strategy, 8> kStrategies = {{
    {.name = "ddp",
     .title = "data parallel",
     .doc = "each rank holds the whole backbone, and gradients are summed during backward",
     .mesh = along_data,
     .make = make_ddp,
     .settings = "ddp",
     .sums_in_order = true,
     .takes_gradients = true,
     .has_whole_state = true},
    {.name = "zero1",
     .title = "data parallel with a sharded optimizer",
     .doc = "as ddp, but each rank updates a part of the backbone, and holds the optimizer's state of that part",
     .mesh = along_both,
     .make = make_sharded<Sharded::optimizer>,
     .axes = Axes::all(),
     .divides = Sharded::optimizer,
     .sums_in_order = true,
     .takes_gradients = true},
    {.name = "zero2",
     .title = "data parallel with sharded gradients",
     .doc = "as zero1, and each rank holds only its part of the gradients",
     .mesh = along_both,
     .make = make_sharded<Sharded::gradients>,
     .axes = Axes::all(),
     .divides = Sharded::gradients,
     .sums_in_order = true,
     .takes_gradients = true},
    {.name = "fsdp",
     .title = "fully sharded data parallel",
     .doc = "as zero2, and each rank holds only its part of the backbone; a block is gathered while it runs",
     .mesh = with_neighbours,
     .make = make_sharded<Sharded::parameters>,
     .settings = "fsdp",
     .axes = Axes::all(),
     .divides = Sharded::parameters,
     .sums_in_order = true,
     .takes_gradients = true},
    {.name = "dp",
     .title = "data parallel in one process",
     .doc = "the ranks are threads of one process, which share one backbone; the first also holds the whole head",
     .mesh = one_rank,
     .make = make_dp,
     .axes = {Axis::data},
     .is_one_process = true},
    {.name = "ps",
     .title = "parameter server",
     .doc = "as ddp, but after backward each rank combines one part of all ranks' gradients (ps.aggregate)",
     .mesh = with_servers,
     .make = make_ps,
     .settings = "ps",
     .idle = servers_apart},
    {.name = "local-sgd",
     .title = "local SGD",
     .doc = "each rank trains its own backbone on its own images; every few steps all backbones become their mean",
     .mesh = along_data,
     .make = make_averaging<kLocalSgd>,
     .settings = "local_sgd",
     .is_synchronous = false,
     .meet_each_step = average_each_step<kLocalSgd>},
    {.name = "diloco",
     .title = "DiLoCo",
     .doc = "as local-sgd, but an outer optimizer takes a step towards the mean",
     .mesh = along_data,
     .make = make_averaging<kDiloco>,
     .settings = "diloco",
     .is_synchronous = false,
     .meet_each_step = average_each_step<kDiloco>},
}};

}  // namespace

std::vector<int64_t> Shares::of(int64_t n) const {
  auto shares = comm::split_sizes(n, workers());
  shares.resize(static_cast<size_t>(ranks), 0);
  return shares;
}

std::span<const Strategy> strategies() { return kStrategies; }

const Strategy& strategy_of(std::string_view name) {
  const auto at = std::ranges::find(kStrategies, name, &Strategy::name);
  if (at != kStrategies.end()) return *at;
  std::string names;
  for (const auto& strategy : kStrategies) names += (names.empty() ? "" : ", ") + std::string(strategy.name);
  throw SettingsError("parallel is '" + std::string(name) + "', wanted one of " + names);
}

}  // namespace tandem::parallel
