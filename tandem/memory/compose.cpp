#include <map>

#include "tandem/memory/detail/book.h"
#include "tandem/memory/rehearsal.h"

namespace tandem::memory {
namespace {

using Storage = std::pair<size_t, uint64_t>;  // a block, and the number of an allocation of it

/// Which allocations of neighbours are the same storage.
class Storages {
 public:
  explicit Storages(const std::vector<BlockRecord>& blocks) {
    for (size_t i = 1; i < blocks.size(); ++i) {
      const auto &before = blocks[i - 1], &behind = blocks[i];
      for (size_t k = 0; k < before.outputs.size(); ++k) {
        join({i - 1, before.outputs[k]}, {i, behind.inputs[k]});
        join({i, behind.input_gradients[k]}, {i - 1, before.output_gradients[k]});
      }
    }
  }

  /// The one that stands for all of them.
  Storage find(Storage storage) const {
    for (auto next = same_.find(storage); next != same_.end(); next = same_.find(storage)) storage = next->second;
    return storage;
  }

 private:
  void join(Storage first, Storage second) {
    if (first.second == 0 || second.second == 0) return;
    const auto to = find(first), from = find(second);
    if (from != to) same_[from] = to;
  }

  std::map<Storage, Storage> same_;
};

/// The events of a step, in their order.
struct Moment {
  Storage storage;
  const Event* event;
};

class Step {
 public:
  explicit Step(const std::vector<BlockRecord>& blocks) : storages_(blocks) {
    for (size_t i = 0; i < blocks.size(); ++i) add(i, blocks[i].forward);
    for (size_t i = blocks.size(); i-- > 0;) add(i, blocks[i].backward);
    if (!blocks.empty()) keep_root(storages_.find({blocks.size() - 1, blocks.back().output_gradients.at(0)}));
    num_backward_ = moments_.size();
    for (size_t i = blocks.size(); i-- > 0;) add(i, blocks[i].end);
    note_ends();
  }

  /// grow(entry) when a storage is allocated, shrink(entry) when its last holder lets it go, in_update() in between.
  template <class Grow, class Shrink, class Update>
  void play(const Grow& grow, const Shrink& shrink, const Update& in_update) const {
    for (size_t i = 0; i < moments_.size(); ++i) {
      if (i == num_backward_) in_update();
      const auto& life = lives_.at(moments_[i].storage);
      if (life.born == kNever) continue;  // the input of the first block: others hold it
      if (i == life.born) grow(life.entry);
      if (i == life.gone) shrink(life.entry);
    }
    if (num_backward_ == moments_.size()) in_update();
  }

 private:
  struct Life {
    detail::Entry entry;  // with its last category
    size_t born = kNever, gone = kNever;
  };
  static constexpr size_t kNever = ~size_t{0};

  void add(size_t block, const std::vector<Event>& events) {
    for (const auto& event : events) moments_.push_back({storages_.find({block, event.number}), &event});
  }

  /// libtorch holds the gradient of the loss until backward is over.
  void keep_root(Storage root) {
    for (size_t i = 0; i < moments_.size(); ++i) {
      if (moments_[i].storage != root || moments_[i].event->what != Event::What::free) continue;
      const auto moment = moments_[i];
      moments_.erase(moments_.begin() + static_cast<std::ptrdiff_t>(i));
      moments_.push_back(moment);
      return;
    }
  }

  void note_ends() {
    for (size_t i = 0; i < moments_.size(); ++i) {
      const auto& event = *moments_[i].event;
      auto& life = lives_[moments_[i].storage];
      if (event.what != Event::What::free) life.entry.category = event.category, life.entry.block = event.block;
      life.entry.bytes = event.bytes;
      if (event.what == Event::What::allocate && life.born == kNever) life.born = i;
      if (event.what == Event::What::free) life.gone = i;
    }
  }

  Storages storages_;
  std::vector<Moment> moments_;
  size_t num_backward_ = 0;
  std::map<Storage, Life> lives_;
};

detail::Sums sums_of(const Account& held) {
  detail::Sums sums;
  for (const auto& block : held.blocks) {
    for (size_t i = 0; i < block.live.size(); ++i) sums.change(block.block, static_cast<Category>(i), block.live[i]);
  }
  return sums;
}

/// The books of a step that is played, not run.
class Books {
 public:
  explicit Books(const Account& held) : live_(sums_of(held)) { peak_.begin(live_, 0); }

  void change(int block, Category category, int64_t bytes) {
    if (bytes < 0) peak_.leave(live_);
    live_.change(block, category, bytes);
    if (bytes > 0) peak_.grown(live_, 0);
    if (live_.bytes > highest_) highest_ = live_.bytes, block_ = block;
  }
  const detail::Sums& at_peak() const { return peak_.sums(live_); }
  int block() const { return block_; }

 private:
  detail::Sums live_;
  detail::Peak peak_;
  int64_t highest_ = 0;
  int block_ = 0;  // of the highest
};

}  // namespace

Composition compose(const std::vector<BlockRecord>& blocks, const Account& held, std::span<const Change> update) {
  Books books(held);
  const auto in_update = [&] {
    for (const auto& one : update) {
      books.change(one.block, one.category, one.bytes);
      books.change(one.block, one.category, -one.bytes);
    }
  };
  Step(blocks).play([&](const auto& entry) { books.change(entry.block, entry.category, entry.bytes); },
                    [&](const auto& entry) { books.change(entry.block, entry.category, -entry.bytes); }, in_update);
  return {detail::account_of(sums_of(held), books.at_peak()), books.block()};
}

}  // namespace tandem::memory
