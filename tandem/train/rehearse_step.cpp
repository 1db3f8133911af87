#include "tandem/train/supervised_step.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "tandem/base/context.h"
#include "tandem/memory/block_runner.h"
#include "tandem/train/detail/micro_batches.h"
#include "tandem/train/detail/row_hooks.h"

// What a step will need, told before the first has run.
namespace tandem::train {
namespace {

int64_t bytes_of(const std::vector<Tensor>& tensors) {
  int64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

std::vector<Tensor> without(std::vector<Tensor> tensors, const std::vector<Tensor>& others) {
  std::erase_if(tensors, [&](const Tensor& tensor) {
    return std::ranges::any_of(others, [&](const Tensor& other) { return other.is_same(tensor); });
  });
  return tensors;
}

/// Of the memory that they lie in.
int64_t bytes_of_gradients(const std::vector<Tensor>& tensors) {
  std::map<const void*, int64_t> storages;
  for (const auto& tensor : tensors) {
    if (!tensor.grad().defined()) continue;
    const auto& storage = tensor.grad().storage();
    storages[storage.unsafeGetStorageImpl()] = static_cast<int64_t>(storage.nbytes());
  }
  int64_t bytes = 0;
  for (const auto& [storage, size] : storages) bytes += size;
  return bytes;
}

/// Notes the rows of sparse gradients while it lives.
class SparseRows {
 public:
  explicit SparseRows(const std::vector<Parameter>& parameters) : parameters_(parameters), rows_(parameters.size(), 0) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      hooks_.push_back(parameters_[i].tensor.register_hook([&rows = rows_[i]](const Tensor& gradient) {
        if (gradient.defined() && gradient.is_sparse()) rows = std::max(rows, gradient._nnz());
      }));
    }
  }
  ~SparseRows() {
    for (size_t i = 0; i < hooks_.size(); ++i) parameters_[i].tensor.remove_hook(hooks_[i]);
  }
  SparseRows(const SparseRows&) = delete;
  SparseRows& operator=(const SparseRows&) = delete;

  /// Of each parameter; 0: no gradient is sparse.
  const std::vector<int64_t>& rows() const { return rows_; }

 private:
  const std::vector<Parameter>& parameters_;
  std::vector<int64_t> rows_;
  std::vector<unsigned> hooks_;
};

void reset_gradients(const std::vector<Tensor>& tensors) {
  for (const auto& tensor : tensors) tensor.mutable_grad().reset();
}

}  // namespace

memory::Composition SupervisedStep::rehearse(const data::Batch& batch, memory::Account held) {
  if (may_skip_) held.add(Category::buffers, bytes_of(tensors_of(task_.buffers())));
  const auto parts = parts_of(batch);
  const auto images = [](const detail::BatchPart& part) { return part.batch.images.size(0); };
  const auto equals_next = [&](size_t i) {  // which adds to the gradients at the latest
    return i + 1 < parts.size() && images(parts[i]) > 0 && images(parts[i]) == images(parts[i + 1]) &&
           parts[i].batch.global_size == parts[i + 1].batch.global_size;
  };
  std::optional<memory::Composition> highest;
  for (size_t i = parts.size(); i-- > 0;) {  // the last first: the model may refuse its images
    if (equals_next(i) || (i > 0 && images(parts[i]) == 0)) continue;
    const auto one = rehearse_part(parts[i], held, /*adds=*/i > 0);
    highest = highest ? highest_of(one, *highest) : one;
  }
  const memory::Change meeting{sync_->after_step_bytes(), Category::communication, 0};
  return highest_of(*highest, memory::compose({}, held, {&meeting, 1}));
}

/// `adds`: all gradients are there, and backward adds to them: as from the second micro-batch on.
memory::Composition SupervisedStep::rehearse_part(const detail::BatchPart& part, memory::Account held, bool adds) {
  std::vector<memory::Change> update;
  held.add(Category::communication, sync_->beside_bytes());
  if (const auto exchange = sync_->exchange_bytes(); exchange > 0) {
    update.push_back({exchange, Category::communication, 0});
  }
  if (options_.clip > 0) update.push_back({clip_memory(trained_, norm_sum()), Category::activations, 0});
  const auto parts = parts_with_gradients();
  const SparseRows sparse(trained_);
  const auto records = rehearse_chain(memory::by_runners(task_.chain(part.batch, part.sizes)), part, adds);
  if (adds) {
    held.add(Category::gradients, bytes_of(whole_gradients()) + bytes_of_gradients(parts));
  }
  reset_gradients(parts);
  for (size_t i = 0; i < trained_.size(); ++i) {
    if (const auto rows = sparse.rows()[i]; rows > 0) {
      update.push_back({optimizer_.row_bytes(i, rows), Category::optimizer, 0});
    }
  }
  return memory::compose(records, held, update);
}

/// The parts of parameters that the strategy holds in their place, and whose gradients backward allocates.
std::vector<Tensor> SupervisedStep::parts_with_gradients() const {
  return without(without(tensors_of(trained_), tensors_of(task_.parameters())), sync_->owned_gradients());
}

/// The parameters that the strategy leaves as they are, whose gradients backward allocates.
std::vector<Tensor> SupervisedStep::whole_gradients() const {
  return without(without(tensors_of(trained_), parts_with_gradients()), sync_->owned_gradients());
}

Step::Blocks SupervisedStep::rehearse_blocks(const data::Batch& batch, bool in_parts) {
  const auto part = parts_of(batch).front();
  Blocks blocks{task_.chain(part.batch, part.sizes), {}};
  if (in_parts) blocks.chain = memory::in_parts(blocks.chain);
  blocks.records = rehearse_chain(blocks.chain, part, part.place.count > 1);
  reset_gradients(parts_with_gradients());
  return blocks;
}

/// Leaves gradients of parts_with_gradients().
std::vector<memory::BlockRecord> SupervisedStep::rehearse_chain(const memory::Chain& chain,
                                                                const detail::BatchPart& part, bool adds) {
  memory::RehearsalOptions options = {.given_away = sync_->owned_gradients(), .starts_at_output = true};
  if (adds) options.added_to = whole_gradients();
  const detail::RowHooks hooks(task_, optimizer_, /*learning_rate=*/0.0);
  sync_->run_alone(true);
  if (adds && !parts_with_gradients().empty()) {  // the micro-batch before leaves them
    const memory::ProbeScope aside;
    memory::rehearse(chain, {part.batch.images}, options);
  }
  auto records = memory::rehearse(chain, {part.batch.images}, options);
  sync_->run_alone(false);
  return records;
}

}  // namespace tandem::train
