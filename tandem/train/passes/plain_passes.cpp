#include "tandem/train/passes/plain_passes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "tandem/base/context.h"
#include "tandem/base/finite.h"
#include "tandem/memory/block_runner.h"
#include "tandem/memory/channel_statistics.h"

namespace tandem::train {
namespace {

int64_t bytes_of(const std::vector<Tensor>& tensors) {
  int64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
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

/// `tensors` that are none of `others`.
std::vector<Tensor> without(std::vector<Tensor> tensors, const std::vector<Tensor>& others) {
  std::erase_if(tensors, [&](const Tensor& tensor) {
    return std::ranges::any_of(others, [&](const Tensor& other) { return other.is_same(tensor); });
  });
  return tensors;
}

}  // namespace

parallel::SyncMemory memory_of(parallel::GradientSync& sync) {
  auto* rehearsal = sync.rehearsal();
  return rehearsal != nullptr ? rehearsal->memory() : parallel::SyncMemory();
}

RunAloneScope::RunAloneScope(parallel::GradientSync& sync) : rehearsal_(sync.rehearsal()) {
  if (rehearsal_ != nullptr) rehearsal_->run_alone(true);
}

RunAloneScope::~RunAloneScope() {
  if (rehearsal_ != nullptr) rehearsal_->run_alone(false);
}

AllocatedGradients allocated_gradients(const std::vector<Parameter>& trained, const Task& task,
                                       const parallel::SyncMemory& sync) {
  const auto all = without(tensors_of(trained), sync.owned_gradients);
  const auto parts = without(all, tensors_of(task.parameters()));
  return {without(all, parts), parts};
}

void reset_gradients(const std::vector<Tensor>& tensors) {
  for (const auto& tensor : tensors) tensor.mutable_grad().reset();
}

PlainPasses::PlainPasses(Task& task, parallel::GradientSync& sync, const std::vector<Parameter>& trained,
                         comm::ProcessGroup& data, const PlainPassesOptions& options)
    : task_(task), sync_(sync), trained_(trained), data_(data), options_(options) {
  if (options.shards > 0) ordered_buffers_.emplace(task.buffers(), options.shards / data.size());
}

std::vector<BatchPart> PlainPasses::parts_of(const data::Batch& batch) const {
  return options_.shards > 0 ? cut_shards(batch, options_.shards, data_)
                             : cut(batch, options_.accumulate, options_.shares.of(batch.global_size), data_.rank());
}

std::vector<double> PlainPasses::run(const data::Batch& batch, double scale, detail::StepNumbers& numbers) {
  std::vector<double> shares;
  if (ordered_buffers_) ordered_buffers_->before_step();
  const auto parts = parts_of(batch);
  memory::StatisticsBook book;
  const bool defers = parts.size() > 1 && !ordered_buffers_;
  const auto around = defers ? memory::deferring(book) : current_context();
  for (const auto& part : parts) {
    const ContextScope scope(context_of(part, around));
    sync_.before_forward(part.place);
    auto own = task_.loss(part.batch, part.sizes);
    if (ordered_buffers_) ordered_buffers_->end_shard(part.batch.images.size(0));
    const auto terms = static_cast<size_t>(own.numel());
    TORCH_INTERNAL_ASSERT(terms == part.shares.size(), "a step's loss has ", terms, " numbers");
    numbers.add(own.numel()).copy_(own.detach().reshape({-1}));
    shares.insert(shares.end(), part.shares.begin(), part.shares.end());
    if (options_.steps_in_backward && !all_finite(own.detach())) return shares;
    sync_.before_backward(own, part.place);
    {
      const PhaseScope phase(Phase::backward);
      own.backward(start_of_backward(own, part, scale));
    }
    own.reset();  // with what its graph holds
    sync_.after_backward(part.place);
  }
  book.commit();
  if (ordered_buffers_) ordered_buffers_->end_step(data_);
  return shares;
}

memory::Composition PlainPasses::rehearse(const data::Batch& batch, memory::Account held, const Update& update) {
  const auto parts = parts_of(batch);
  const auto images = [](const BatchPart& part) { return part.batch.images.size(0); };
  const auto equals_next = [&](size_t i) {  // which adds to the gradients at the latest
    return i + 1 < parts.size() && images(parts[i]) > 0 && images(parts[i]) == images(parts[i + 1]) &&
           parts[i].batch.global_size == parts[i + 1].batch.global_size;
  };
  std::optional<memory::Composition> highest;
  for (size_t i = parts.size(); i-- > 0;) {  // the last first: the model may refuse its images
    if (equals_next(i) || (i > 0 && images(parts[i]) == 0)) continue;
    const auto one = rehearse_part(parts[i], held, /*adds=*/i > 0, update);
    highest = highest ? highest_of(one, *highest) : one;
  }
  return *std::move(highest);
}

/// `adds`: all gradients are there, and backward adds to them: as from the second micro-batch on.
memory::Composition PlainPasses::rehearse_part(const BatchPart& part, memory::Account held, bool adds,
                                               const Update& update) {
  std::vector<memory::Change> changes;
  const auto sync = memory_of(sync_);
  held.add(Category::communication, sync.beside);
  if (sync.exchange > 0) changes.push_back({sync.exchange, Category::communication, 0});
  const auto allocated = allocated_gradients(trained_, task_, sync);
  const SparseRows sparse(trained_);
  const auto records = rehearse_chain(memory::by_runners(task_.chain(part.batch, part.sizes)), part, adds, sync);
  if (adds) {
    held.add(Category::gradients, bytes_of(allocated.whole) + bytes_of_gradients(allocated.parts));
  }
  reset_gradients(allocated.parts);
  for (const auto& change : update(sparse.rows())) changes.push_back(change);
  return memory::compose(records, held, changes);
}

std::vector<Step::Blocks> PlainPasses::rehearse_blocks(const data::Batch& batch, bool in_parts) {
  const auto part = parts_of(batch).front();
  Step::Blocks blocks{task_.chain(part.batch, part.sizes), {}};
  if (in_parts) blocks.chain = memory::in_parts(blocks.chain);
  const auto sync = memory_of(sync_);
  blocks.records = rehearse_chain(blocks.chain, part, part.place.count > 1, sync);
  reset_gradients(allocated_gradients(trained_, task_, sync).parts);
  return {blocks};
}

/// Leaves gradients of AllocatedGradients::parts.
std::vector<memory::BlockRecord> PlainPasses::rehearse_chain(const memory::Chain& chain, const BatchPart& part,
                                                             bool adds, const parallel::SyncMemory& sync) {
  const auto allocated = allocated_gradients(trained_, task_, sync);
  memory::RehearsalOptions options = {.given_away = sync.owned_gradients, .starts_at_output = true};
  if (adds) options.added_to = allocated.whole;
  const RunAloneScope alone(sync_);
  if (adds && !allocated.parts.empty()) {  // the micro-batch before leaves them
    const memory::ProbeScope aside;
    memory::rehearse(chain, {part.batch.images}, options);
  }
  return memory::rehearse(chain, {part.batch.images}, options);
}

}  // namespace tandem::train
