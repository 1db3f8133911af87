#include "tandem/parallel/detail/sharded_flat.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "tandem/base/context.h"
#include "tandem/comm/collectives.h"
#include "tandem/memory/meter.h"
#include "tandem/parallel/detail/held_parts.h"

namespace tandem::parallel::detail {
namespace {

/// Memory that is allocated while it lives is for `category`, and belongs to the parameters' block.
struct Owner {
  Owner(Category category, int block) : of_category(category), of_block(block) {}

  const CategoryScope of_category;
  const BlockScope of_block;
};

/// The memory of `from` goes to the storage of `to`, which has none.
void move_memory(const Tensor& from, const Tensor& to) {
  auto* source = from.storage().unsafeGetStorageImpl();
  auto* target = to.storage().unsafeGetStorageImpl();
  target->set_data_ptr_noswap(std::move(source->mutable_data_ptr()));
  target->set_nbytes(source->nbytes());
  source->set_nbytes(0);
}

void free_memory(const Tensor& tensor) {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(nullptr, tensor.device()));
  storage->set_nbytes(0);
}

/// Of equal parts.
std::vector<int64_t> sizes_of(const Tensor& own, const comm::ProcessGroup& group) {
  return std::vector<int64_t>(static_cast<size_t>(group.size()), own.numel());
}

/// All of the memory that a part of a shard lies in.
Tensor shard_around(const Tensor& part, int64_t size) {
  return at::empty({0}, part.options().requires_grad(false)).set_(part.storage(), 0, {size}, {1});
}

}  // namespace

ShardedFlat::ShardedFlat(std::vector<Parameter> parameters, const Options& options, GatherGroups& groups, Mesh& mesh)
    : parameters_(std::move(parameters)),
      is_trained_(parameters_.at(0).tensor.requires_grad()),
      is_released_(options.is_released && groups.all.size() > 1),
      keeps_gradients_(options.keeps_gradients && is_trained_),
      in_order_(options.in_order),
      groups_(groups),
      shards_(groups.all),
      replicas_(mesh.group(Axis::data)),
      block_(memory::block_of(parameters_[0].tensor)),
      layout_(tensors_of(parameters_), shards_.size()),
      gathered_(options.gathered.value_or(parameters_[0].tensor.scalar_type())) {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView untracked;  // the parameters are no views to autograd
  {
    const Owner owner(Category::parameters, block_);
    flat_ = at::zeros({layout_.size()}, layout_.options());
    for (size_t i = 0; i < parameters_.size(); ++i) layout_.whole(flat_, i).copy_(parameters_[i].tensor);
    comm::broadcast_(flat_, 0, mesh.batch());
    shard_ = flat_.narrow(0, own_first(), layout_.shard_size());
    if (is_released_) shard_ = shard_.clone();
  }
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].tensor.set_data(layout_.whole(flat_, i));
  close();
  make_held(mesh);
  const Owner owner(Category::gradients, block_);
  if (keeps_gradients_) gradients_ = at::zeros({layout_.size()}, layout_.options());
  if (keeps_gradients_ && in_order_) ordered_sum_ = empty_shard();
  for (size_t i = 0; is_trained_ && i < parameters_.size(); ++i) {
    watches_.emplace_back(parameters_[i].tensor, [this, i] { take_gradient(i); });
  }
}

void ShardedFlat::make_held(const Mesh& mesh) {
  const ShardHolders holders = {.own = shards_.rank(), .size = shards_.size()};
  for (size_t i = 0; i < parameters_.size(); ++i) {
    auto parameter = parameters_[i];
    if (parameter.placement.is_everywhere()) parameter.placement = mesh.place(parameter.tensor.sizes());
    held_.push_back(held_parts(layout_, i, parameter, shard_, holders));
  }
}

/// What this rank brings: its part, if neighbours gather, or its shard.
Tensor ShardedFlat::to_gather() {
  if (part_.defined()) return part_;
  if (gathered_ == shard_.scalar_type()) return shard_;
  return rounded_ = shard_.to(gathered_);
}

void ShardedFlat::open() {
  if (is_open_) return;
  const at::NoGradGuard no_grad;
  const Owner owner(Category::parameters, block_);
  if (auto coming = std::exchange(coming_, std::nullopt)) {
    fill(coming->wait());
  } else {
    auto& group = part_.defined() ? *groups_.near : groups_.all;
    const auto own = to_gather();
    fill(comm::all_gather(own, group, 0, sizes_of(own, group)));
  }
  part_.reset();
  is_open_ = true;
}

/// Another thread may hold the tensors for a while: their memory goes nevertheless.
void ShardedFlat::fill(Tensor gathered) {
  if (rounded_.defined()) free_memory(std::exchange(rounded_, Tensor()));
  if (gathered_ != shard_.scalar_type()) {
    const auto rounded = gathered;
    gathered = rounded.to(shard_.scalar_type());
    free_memory(rounded);
  }
  move_memory(gathered, flat_);
}

void ShardedFlat::start_to_open() {
  if (is_open_ || coming_) return;
  const at::NoGradGuard no_grad;
  const Owner owner(Category::parameters, block_);
  auto& group = part_.defined() ? *groups_.near_beside : *groups_.all_beside;
  const auto own = to_gather();
  coming_.emplace(comm::all_gather_async(own, group, 0, sizes_of(own, group)));
}

void ShardedFlat::drop() {
  if (auto coming = std::exchange(coming_, std::nullopt)) free_memory(coming->wait());
  if (rounded_.defined()) free_memory(std::exchange(rounded_, Tensor()));
}

void ShardedFlat::close() {
  part_.reset();
  if (!is_released_ || !is_open_) return;
  free_memory(flat_);
  is_open_ = false;
}

void ShardedFlat::close_in_part() {
  Tensor part;
  if (is_released_ && is_open_ && groups_.near) {
    const at::NoGradGuard no_grad;
    const Owner owner(Category::parameters, block_);
    const int64_t size = layout_.size() / groups_.near->size();
    part = flat_.narrow(0, groups_.near->rank() * size, size).to(gathered_, /*non_blocking=*/false, /*copy=*/true);
  }
  close();
  part_ = std::move(part);
}

void ShardedFlat::refresh() {
  if (!is_released_ && is_trained_) comm::all_gather_(flat_, shards_);
}

void ShardedFlat::start_to_refresh(FlatsBeside& beside) {
  if (!is_released_ && is_trained_) arriving_ = beside.start_to_gather(flat_);
}

void ShardedFlat::end_refresh() {
  if (const auto arriving = std::exchange(arriving_, {})) arriving->waitAndThrow();
}

/// A gradient that backward has made moves here, which costs less than to add it to zeros.
void ShardedFlat::take_gradient(size_t i) {
  auto& gradient = parameters_[i].tensor.mutable_grad();
  if (!is_laid_ || !gradient.defined() || gradient.requires_grad() || gradient.is_alias_of(gradients_)) return;
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView untracked;
  gradient = layout_.whole(gradients_, i).copy_(gradient.is_sparse() ? gradient.to_dense() : gradient);
}

void ShardedFlat::lay_gradients() {
  if (!is_trained_) return;
  reset_gradients();
  lay_made_gradients();
}

void ShardedFlat::lay_made_gradients() {
  if (!is_trained_) return;
  if (!keeps_gradients_) {
    const at::NoGradGuard no_grad;
    const Owner owner(Category::gradients, block_);
    gradients_ = at::empty({layout_.size()}, layout_.options());
    layout_.padding(gradients_).zero_();
  }
  is_laid_ = true;
  for (size_t i = 0; i < parameters_.size(); ++i) take_gradient(i);
}

Tensor ShardedFlat::like_gradients() const {
  if (!is_trained_ || keeps_gradients_ || in_order_) return {};
  const Owner owner(Category::gradients, block_);
  return at::empty({layout_.size()}, layout_.options());
}

int64_t ShardedFlat::sum_bytes(FlatsBeside& sums) const {
  if (!is_trained_ || in_order_) return 0;
  const memory::ProbeScope aside;
  return sums.sum_bytes(at::zeros({layout_.size()}, layout_.options()));
}

void ShardedFlat::reset_gradients() {
  is_laid_ = false;
  for (auto& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

void ShardedFlat::drop_gradients() {
  if (!is_trained_) return;
  reset_gradients();
  if (const auto travelling = std::exchange(travelling_, {})) travelling->wait();
  sum_.reset();
  if (!keeps_gradients_) gradients_.reset();
}

/// Parameters without a gradient have zeros.
void ShardedFlat::fill_gradients() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& gradient = parameters_[i].tensor.grad();
    if (!gradient.defined()) layout_.whole(gradients_, i).zero_();
    TORCH_CHECK(!gradient.defined() || gradient.is_alias_of(gradients_), "fully shard: the gradient of ",
                parameters_[i].name,
                " has left the memory that it was given, wanted backward without create_graph and without a change of "
                ".grad");
  }
}

Tensor ShardedFlat::empty_shard() const {
  const Owner owner(Category::gradients, block_);
  return at::empty({layout_.shard_size()}, layout_.options());
}

void ShardedFlat::start_to_sum(FlatsBeside& sums) {
  if (!is_trained_) return;
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView untracked;
  fill_gradients();
  if (in_order_) return sums.sum_at_once([this] { add_in_order(); });
  reset_gradients();
  if (!keeps_gradients_ && first_held() != nullptr && !sum_so_far().defined()) sum_ = empty_shard();
  travelling_ = sums.start_to_sum(gradients_);
}

void ShardedFlat::end_sum(FlatsBeside& sums) {
  if (!travelling_) return;
  sums.wait(std::exchange(travelling_, {}));
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView untracked;
  const auto own = gradients_.narrow(0, own_first(), layout_.shard_size());
  if (keeps_gradients_) return give(own);
  if (sum_.defined()) {
    give(std::exchange(sum_, Tensor()).copy_(own));
  } else if (const auto earlier = sum_so_far(); earlier.defined()) {
    earlier.add_(own);
  }
  gradients_.reset();
}

/// Of this rank's shard, one after the other.
Tensor ShardedFlat::gradients_of_ranks() const {
  const CategoryScope scratch(Category::communication);
  const std::vector<int64_t> sizes(static_cast<size_t>(shards_.size()), layout_.shard_size());
  return comm::all_to_all(gradients_, shards_, 0, sizes, sizes);
}

int64_t ShardedFlat::exchange_bytes() const {
  if (!is_trained_ || !in_order_) return 0;
  const memory::ProbeScope probe;
  gradients_of_ranks();
  return probe.account().peak_bytes();
}

void ShardedFlat::add_in_order() {
  const int64_t own = layout_.shard_size();
  const auto parts = gradients_of_ranks();
  drop_gradients();
  auto sum = sum_so_far();
  if (!sum.defined()) {
    sum = (keeps_gradients_ ? ordered_sum_ : empty_shard()).zero_();
    give(sum);
  }
  for (int rank = 0; rank < shards_.size(); ++rank) sum.add_(parts.narrow(0, rank * own, own));
}

/// null: this rank's shard is padding.
const Parameter* ShardedFlat::first_held() const {
  const auto found = std::ranges::find_if(held_, [](const auto& parts) { return !parts.empty(); });
  return found == held_.end() ? nullptr : &found->front();
}

/// Of the gradients of what this rank holds; undefined: there is none, or this rank holds nothing.
Tensor ShardedFlat::sum_so_far() const {
  const auto* held = first_held();
  if (held == nullptr || !held->tensor.grad().defined()) return {};
  return shard_around(held->tensor.grad(), layout_.shard_size());
}

void ShardedFlat::give(const Tensor& sum) {
  for (size_t i = 0; i < held_.size(); ++i) {
    const auto parts = layout_.parts(i, shards_.rank());
    for (size_t k = 0; k < parts.size(); ++k) held_[i][k].tensor.mutable_grad() = layout_.part(sum, i, parts[k]);
  }
}

}  // namespace tandem::parallel::detail
