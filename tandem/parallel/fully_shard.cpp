#include "tandem/parallel/fully_shard.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "tandem/base/context.h"
#include "tandem/memory/weight_work.h"
#include "tandem/parallel/detail/block_backward.h"
#include "tandem/parallel/detail/broadcast_all.h"
#include "tandem/parallel/detail/gradient_tags.h"
#include "tandem/parallel/detail/held_parts.h"
#include "tandem/parallel/detail/ready_in_order.h"
#include "tandem/parallel/detail/sharded_flat.h"

namespace tandem::parallel {
namespace {

using Flats = std::vector<std::unique_ptr<detail::ShardedFlat>>;
using Key = const c10::TensorImpl*;

Key key_of(const Tensor& tensor) { return tensor.unsafeGetTensorImpl(); }

/// Which unit each parameter belongs to: the block of its number in the chain, or else the unit behind the last block.
std::map<size_t, std::vector<Parameter>> units_of(const std::vector<Parameter>& parameters,
                                                  const memory::Chain* chain) {
  std::unordered_map<Key, size_t> block_of;
  const size_t blocks = chain != nullptr ? chain->blocks.size() : 0;
  for (size_t i = 0; i < blocks; ++i) {
    for (const auto& tensor : memory::parameters_of(chain->blocks[i])) {
      const auto place = block_of.emplace(key_of(tensor), i).first->second;
      TORCH_CHECK_VALUE(place == i, "fully shard: a parameter of sizes ", tensor.sizes(), " is in the blocks ",
                        chain->blocks[place].name, " and ", chain->blocks[i].name, ", wanted it in one");
    }
  }
  std::map<size_t, std::vector<Parameter>> units;
  for (const auto& parameter : parameters) {
    const auto found = block_of.find(key_of(parameter.tensor));
    units[found == block_of.end() ? blocks : found->second].push_back(parameter);
  }
  return units;
}

/// Vectors, such as those of norms, may be used as they are.
bool is_product_factor(const Tensor& tensor) { return tensor.dim() >= 2; }

/// Parameters of one type, either trained or not, and either empty or not; `apart`: and either factors of products or
/// not.
std::vector<std::vector<Parameter>> alike(const std::vector<Parameter>& parameters, bool apart) {
  std::vector<std::vector<Parameter>> groups;
  for (const auto& parameter : parameters) {
    const auto& tensor = parameter.tensor;
    const auto fits = [&](const std::vector<Parameter>& group) {
      const auto& other = group[0].tensor;
      return other.dtype() == tensor.dtype() && other.device() == tensor.device() &&
             other.requires_grad() == tensor.requires_grad() && (other.numel() == 0) == (tensor.numel() == 0) &&
             (!apart || is_product_factor(other) == is_product_factor(tensor));
    };
    const auto found = std::ranges::find_if(groups, fits);
    (found == groups.end() ? groups.emplace_back() : *found).push_back(parameter);
  }
  return groups;
}

void check_neighbours(const FullyShardOptions& options, int shard) {
  TORCH_CHECK_VALUE(options.reshard >= 0 && (options.reshard <= 1 || shard % options.reshard == 0),
                    "fully shard: reshard is ", options.reshard, " with ", shard,
                    " ranks that share the parameters, wanted a number that divides them");
}

/// Runs `work` before the block, or its first part.
void run_before(memory::Block& block, const std::function<void()>& work) {
  block.forward = [work, forward = std::move(block.forward)](const memory::Flow& input) {
    work();
    return forward(input);
  };
  if (!block.parts.empty()) run_before(block.parts.front(), work);
}

/// Opens what is closed of a block's flats, and closes that again.
class OpenScope {
 public:
  explicit OpenScope(const Flats& flats) {
    for (const auto& flat : flats) {
      if (flat->is_open()) continue;
      opened_.push_back(flat.get());
      flat->open();
    }
  }
  void leave_open() { opened_.clear(); }
  void keep_parts() { keeps_parts_ = true; }

  ~OpenScope() {
    for (auto* flat : opened_) keeps_parts_ ? flat->close_in_part() : flat->close();
  }
  OpenScope(const OpenScope&) = delete;
  OpenScope& operator=(const OpenScope&) = delete;

 private:
  std::vector<detail::ShardedFlat*> opened_;
  bool keeps_parts_ = false;
};

}  // namespace

struct FullyShard::Impl : detail::BlockBackward {
  Impl(Mesh& of_mesh, const std::vector<Tensor>& parameters, std::vector<Tensor> of_model,
       const FullyShardOptions& of_caller)
      : mesh(of_mesh), tags(parameters), buffers(std::move(of_model)), options(of_caller) {}

  void enter(size_t block, Left* left) override {
    if (is_alone && left == nullptr && !ends_run(block)) imagine_sums(block + 1);
    for (const auto& flat : flats[block]) flat->open();
    if (block > 0 && is_in_graph[block - 1] && !ends_run(block - 1)) fetch(block - 1);
    if (left != nullptr) return;
    for (const auto& flat : flats[block]) flat->lay_gradients();
  }

  void leave(size_t block, Left* left) override {
    close(block);
    if (left != nullptr) {
      put_aside(block, *left);
      if (is_alone && block > 0) drop(block - 1);
      return;
    }
    imagined.clear();
    end_sums();
    start_sums(block);
    if (!is_alone) return;
    end_sums();
    if (block > 0) drop(block - 1);
  }

  void end() override { end_sums(); }

  /// What comes from the rest of its backward.
  struct Ending : memory::WeightWork::Ending {
    Ending(Impl& of, size_t number) : impl(of), block(number) {}
    void ended() override { impl.take_left(block, *left); }

    Impl& impl;
    size_t block;
    std::shared_ptr<Left> left = std::make_shared<Left>();
  };

  /// Of the block's forward that runs now; null: its backward is whole.
  std::shared_ptr<Left> left_of(size_t block) {
    const auto work = at::GradMode::is_enabled() ? memory::weight_work() : nullptr;
    if (work == nullptr) return nullptr;
    const int number = block_number(plain[block].name);
    if (work->ending_of(number) == nullptr) work->add_ending(number, std::make_shared<Ending>(*this, block));
    return static_cast<Ending&>(*work->ending_of(number)).left;
  }

  /// The gradients that backward has made, of one micro-batch of several that may be under way.
  void put_aside(size_t block, Left& left) const {
    for (const auto& flat : flats[block]) {
      for (const auto& parameter : flat->parameters()) {
        auto& gradient = parameter.tensor.mutable_grad();
        if (gradient.defined()) left.made.emplace_back(parameter.tensor, std::exchange(gradient, {}));
      }
    }
  }

  void take_left(size_t block, Left& left) {
    const at::NoGradGuard no_grad;
    for (auto& [tensor, made] : std::exchange(left.made, {})) {
      auto& gradient = tensor.mutable_grad();
      gradient.defined() ? void(gradient.add_(made)) : void(gradient = std::move(made));
    }
    for (const auto& flat : flats[block]) flat->lay_made_gradients();
    start_sums(block);
    end_sums();
  }

  /// No block follows it at once.
  bool ends_run(size_t block) const { return plain[block].ends_run; }

  void abandon(size_t block) override {
    close(block);
    for (const auto& flat : flats[block]) flat->drop_gradients();
    if (!summed) return;
    for (const auto& flat : flats[*std::exchange(summed, std::nullopt)]) flat->drop_gradients();
  }

  /// At most the sums of one block travel: end_sums() comes before the next.
  void start_sums(size_t block) {
    summed = block;
    for (const auto& flat : flats[block]) flat->start_to_sum(*beside);
  }

  void end_sums() {
    if (!summed) return;
    for (const auto& flat : flats[*std::exchange(summed, std::nullopt)]) flat->end_sum(*beside);
  }

  /// The memory of sums that travel while backward is in the block before.
  void imagine_sums(size_t block) {
    int64_t most = 0;  // one flat after the other
    for (const auto& flat : flats[block]) {
      imagined.push_back(flat->like_gradients());
      if (!flat->keeps_gradients()) most = std::max(most, flat->sum_bytes(*beside));
    }
    const CategoryScope scratch(Category::communication);
    imagined.push_back(at::empty({most}, at::kByte));
  }

  /// From the last block to the first, as backward comes to them, and then what is in no block.
  void follow_whole_gradients() {
    std::vector<std::vector<Tensor>> parameters;
    const auto add = [&](const Flats& unit) {
      for (const auto& flat : unit) {
        if (!flat->keeps_gradients()) continue;
        whole.push_back(flat.get());
        parameters.push_back(tensors_of(flat->parameters()));
      }
    };
    for (size_t block = flats.size() - 1; block-- > 0;) add(flats[block]);
    add(flats.back());
    ready = std::make_unique<detail::ReadyInOrder>(parameters, [this](size_t i) { whole[i]->start_to_sum(*beside); });
  }

  template <class Work>
  void for_each_flat(const Work& work) const {
    for (const auto& unit : flats) {
      for (const auto& flat : unit) work(*flat);
    }
  }

  memory::Flow run(size_t block, const memory::Flow& input) {
    end_refresh(block);
    const bool is_again = is_in_backward();
    if (is_alone && !is_again) close(block);  // without reshard an earlier run has left it open
    memory::Flow output;
    {
      OpenScope open(flats[block]);
      if (!is_again && !ends_run(block)) fetch(block + 1);
      output = plain[block].forward(input);
      const bool is_reached = watch(block, input, output, left_of(block));
      if (!is_again) is_in_graph[block] = is_reached;
      if (is_reached && !is_again && options.reshard == 1) open.leave_open();
      if (is_reached) open.keep_parts();
    }
    if (is_alone && !is_again) drop(block + 1);
    return output;
  }

  void fetch(size_t block) {
    if (!groups->all_beside) return;
    for (const auto& flat : flats[block]) flat->start_to_open();
  }

  void drop(size_t block) {
    for (const auto& flat : flats[block]) flat->drop();
  }

  void close(size_t block) {
    for (const auto& flat : flats[block]) flat->close();
  }

  /// Releases what a step has left open, or has fetched in vain.
  void close_all() {
    for_each_flat([](auto& flat) {
      flat.drop();
      flat.close();
    });
  }

  void refresh() {
    end_refresh();
    for_each_flat([](auto& flat) { flat.refresh(); });
    is_fresh = true;
  }

  /// What is in no block comes first: nobody tells when it is used.
  void start_to_refresh() {
    const auto start = [&](const Flats& unit) {
      for (const auto& flat : unit) flat->start_to_refresh(*beside);
    };
    start(flats.back());
    for (size_t block = 0; block + 1 < flats.size(); ++block) start(flats[block]);
  }

  void end_refresh(size_t unit) {
    for (const auto& flat : flats[unit]) flat->end_refresh();
  }

  void end_refresh() {
    for_each_flat([](auto& flat) { flat.end_refresh(); });
  }

  Mesh& mesh;
  detail::GradientTags tags;
  std::vector<Tensor> buffers;
  FullyShardOptions options;
  std::unique_ptr<detail::GatherGroups> groups;  // null: a group of one
  std::vector<Flats> flats;                      // of each block, then of the rest
  memory::Chain* chain = nullptr;                // whose blocks are replaced
  std::vector<memory::Block> plain;              // as they were
  std::vector<bool> is_in_graph;                 // whether backward will come to the block
  std::unique_ptr<detail::FlatsBeside> beside;   // null: a group of one
  std::optional<size_t> summed;                  // the block whose gradients travel
  std::vector<Tensor> imagined;                  // while blocks run alone: stand for gradients that travel
  std::vector<detail::ShardedFlat*> whole;       // flats that keep their gradients, in the order of their sums
  std::unique_ptr<detail::ReadyInOrder> ready;   // of `whole`
  bool is_alone = false;
  bool is_fresh = false;  // the flats that are always open have what the ranks' shards have: not after loading
};

FullyShard::FullyShard(const std::vector<Parameter>& parameters, std::vector<Tensor> buffers, memory::Chain* chain,
                       Sharded what, Mesh& mesh, const FullyShardOptions& options)
    : impl_(std::make_shared<Impl>(mesh, tensors_of(parameters), std::move(buffers), options)) {
  detail::check_divisible("fully shard", parameters);
  if (mesh.batch().size() == 1) return;
  TORCH_CHECK_VALUE(!options.in_order || mesh.size(Axis::data) == 1,
                    "fully shard: in_order with copies of the shards, wanted one of each");
  const bool is_released = what == Sharded::parameters;
  if (is_released) check_neighbours(options, mesh.size(Axis::shard));
  const size_t blocks = chain != nullptr ? chain->blocks.size() : 0;
  impl_->flats.resize(blocks + 1);
  impl_->groups = std::make_unique<detail::GatherGroups>(mesh, is_released ? options.reshard : 0,
                                                         is_released && options.prefetch && blocks > 0);
  std::vector<Tensor> whole;
  for (const auto& [unit, members] : units_of(parameters, chain)) {
    detail::ShardedFlat::Options of_flat = {.is_released = is_released && unit < blocks,
                                            .keeps_gradients = what == Sharded::optimizer || unit == blocks,
                                            .in_order = options.in_order};
    for (auto& group : alike(members, of_flat.is_released && options.gathered)) {
      const bool is_trained = group[0].tensor.requires_grad();
      if (!is_trained && (!of_flat.is_released || group[0].tensor.numel() == 0)) {
        for (const auto& parameter : group) whole.push_back(parameter.tensor);
        continue;
      }
      of_flat.gathered = of_flat.is_released && is_product_factor(group[0].tensor) ? options.gathered : std::nullopt;
      impl_->flats[unit].push_back(
          std::make_unique<detail::ShardedFlat>(std::move(group), of_flat, *impl_->groups, mesh));
    }
  }
  detail::broadcast_all(whole, 0, mesh.batch());
  detail::broadcast_all(impl_->buffers, 0, mesh.batch());
  impl_->beside = std::make_unique<detail::FlatsBeside>(mesh);
  impl_->follow_whole_gradients();
  if (blocks == 0) return;
  impl_->chain = chain;
  impl_->plain = chain->blocks;
  impl_->is_in_graph.resize(blocks);
  for (size_t i = 0; i < blocks; ++i) {
    if (what == Sharded::optimizer) {
      if (!impl_->flats[i].empty()) run_before(chain->blocks[i], [impl = impl_, i] { impl->end_refresh(i); });
      continue;
    }
    // A block without parameters of its own ends the sums of the one behind it, too.
    chain->blocks[i].forward = [impl = impl_, i](const memory::Flow& input) { return impl->run(i, input); };
    chain->blocks[i].parts.clear();
  }
}

FullyShard::~FullyShard() {
  if (impl_->chain != nullptr) impl_->chain->blocks = impl_->plain;
}

std::vector<Parameter> FullyShard::held(std::vector<Parameter> parameters) const {
  detail::PartsOf parts;
  impl_->for_each_flat([&](const auto& flat) {
    for (size_t i = 0; i < flat.parameters().size(); ++i) parts[flat.parameters()[i].tensor] = &flat.held(i);
  });
  return detail::replace_by_parts(std::move(parameters), parts);
}

void FullyShard::before_forward(const MicroBatch& micro) {
  impl_->end_at_once();
  impl_->close_all();
  if (impl_->ready) impl_->ready->drop();  // the step before may have been left
  if (impl_->ready && micro.is_last() && !impl_->options.in_order) impl_->ready->begin();
  if (!micro.is_first() && !impl_->options.in_order) return;
  if (!impl_->is_fresh) impl_->refresh();
  if (!impl_->flats.empty()) impl_->end_refresh(impl_->flats.size() - 1);
  for (auto* flat : impl_->whole) {
    flat->drop_gradients();
    flat->lay_gradients();
  }
}

void FullyShard::before_backward(const Tensor&, const MicroBatch&, flight::Where) {
  impl_->end_refresh();  // of blocks that have not run
}

void FullyShard::after_backward(const MicroBatch& micro) {
  if (impl_->options.in_order) {
    for (auto* flat : impl_->whole) flat->start_to_sum(*impl_->beside);
  } else if (impl_->ready && micro.is_last()) {
    impl_->ready->end();
    for (auto* flat : impl_->whole) flat->end_sum(*impl_->beside);
  }
}

void FullyShard::take_gradients(flight::Where) {
  if (!impl_->beside) return;
  for (auto* flat : impl_->whole) {
    if (!flat->is_travelling()) flat->start_to_sum(*impl_->beside);
  }
  for (auto* flat : impl_->whole) flat->end_sum(*impl_->beside);
}

void FullyShard::start_to_take(const std::vector<Tensor>& complete, flight::Where) {
  if (!impl_->beside || impl_->options.in_order) return;
  const auto is_complete = [&](const Parameter& parameter) {
    return std::ranges::any_of(complete, [&](const Tensor& tensor) { return tensor.is_same(parameter.tensor); });
  };
  for (auto* flat : impl_->whole) {
    if (flat->is_travelling() || !std::ranges::all_of(flat->parameters(), is_complete)) continue;
    flat->start_to_sum(*impl_->beside);
  }
}

void FullyShard::after_step() {
  impl_->close_all();
  if (impl_->chain == nullptr) return impl_->refresh();
  impl_->start_to_refresh();
}

void FullyShard::run_alone(bool is_on) {
  impl_->is_alone = is_on;
  impl_->close_all();
}

/// Of flats that keep their gradients; the others send theirs when backward leaves their block.
SyncMemory FullyShard::memory() {
  SyncMemory memory{.owned_gradients = owned_gradients()};
  for (const auto* flat : impl_->whole) {
    memory.exchange = std::max(memory.exchange, flat->exchange_bytes());
    memory.beside = std::max(memory.beside, flat->sum_bytes(*impl_->beside));
  }
  return memory;
}

GradientSync::Overlap FullyShard::overlap() const { return impl_->beside ? impl_->beside->overlap() : Overlap{}; }

void FullyShard::values_replaced() {
  impl_->end_refresh();
  impl_->is_fresh = false;
}

void FullyShard::wait() { impl_->end_refresh(); }

void FullyShard::unify(const std::vector<Parameter>&) {
  if (impl_->mesh.batch().size() == 1) return;
  impl_->is_fresh ? impl_->end_refresh() : impl_->refresh();
  detail::broadcast_all(impl_->buffers, 0, impl_->mesh.batch());
}

std::vector<Tensor> FullyShard::owned_gradients() const {
  std::vector<Tensor> owned;
  for (const auto* flat : impl_->whole) {
    for (size_t i = 0; i < flat->parameters().size(); ++i) {
      owned.push_back(flat->parameters()[i].tensor);
      for (const auto& part : flat->held(i)) owned.push_back(part.tensor);
    }
  }
  return owned;
}

}  // namespace tandem::parallel
