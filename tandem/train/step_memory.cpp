#include "tandem/train/step_memory.h"

#include "tandem/base/context.h"
#include "tandem/comm/split.h"
#include "tandem/train/detail/row_hooks.h"

namespace tandem::train {
namespace {

void add(memory::Account& account, Category category, int64_t bytes) {
  const auto place = static_cast<size_t>(category);
  account.live[place] += bytes;
  if (account.blocks.empty() || account.blocks[0].block != 0) {
    account.blocks.insert(account.blocks.begin(), memory::BlockBytes());
  }
  account.blocks[0].live[place] += bytes;
}

int64_t bytes_of(const std::vector<Buffer>& buffers) {
  int64_t bytes = 0;
  for (const auto& buffer : buffers) bytes += static_cast<int64_t>(buffer.tensor.nbytes());
  return bytes;
}

}  // namespace

memory::Composition rehearse_step(Task& task, const TrainerOptions& options, const data::Batch& batch, int64_t batches,
                                  const memory::ProbeScope& probe, comm::ProcessGroup& group) {
  const auto parameters = task.parameters();
  Optimizer optimizer(parameters, options.optimizer);
  const auto rows = task.row_parameter();
  if (rows && rows->moves_all_rows) optimizer.move_all_rows(rows->place);
  std::vector<Tensor> replicated, buffers;
  std::vector<std::string> names;
  for (const auto& parameter : parameters) {
    if (!parameter.placement.is_everywhere()) continue;
    replicated.push_back(parameter.tensor);
    names.push_back(parameter.name);
  }
  for (const auto& buffer : task.buffers()) buffers.push_back(buffer.tensor);
  const parallel::DistributedDataParallel replicas(replicated, buffers, names, group);
  auto held = probe.account();
  add(held, Category::buffers, batches);
  if (options.skip_nonfinite > 0) add(held, Category::buffers, bytes_of(task.buffers()));
  const detail::RowHooks hooks(task, optimizer, /*learning_rate=*/0.0);
  const auto chain = task.chain(batch, comm::split_sizes(batch.global_size, group.size()));
  const auto records = memory::rehearse(chain, {batch.images}, {.gives_gradients_away = group.size() > 1});
  std::vector<memory::Change> update;
  if (options.clip > 0) update.push_back({clip_memory(parameters), Category::activations, 0});
  return memory::compose(records, held, update);
}

}  // namespace tandem::train
