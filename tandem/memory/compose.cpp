#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "tandem/memory/detail/book.h"
#include "tandem/memory/rehearsal.h"

namespace tandem::memory {
namespace {

using Blocks = std::vector<BlockRecord>;

/// An allocation of a block in a micro-batch.
struct Storage {
  size_t micro_batch = 0, block = 0;
  uint64_t number = 0;

  auto operator<=>(const Storage&) const = default;
};

/// Which allocations of neighbours are the same storage.
class Storages {
 public:
  explicit Storages(std::span<const Blocks> micro_batches) {
    for (size_t micro = 0; micro < micro_batches.size(); ++micro) join_neighbours(micro, micro_batches[micro]);
  }

  /// The one that stands for all of them.
  Storage find(Storage storage) const {
    for (auto next = same_.find(storage); next != same_.end(); next = same_.find(storage)) storage = next->second;
    return storage;
  }

 private:
  void join_neighbours(size_t micro, const Blocks& blocks) {
    for (size_t i = 1; i < blocks.size(); ++i) {
      const auto &before = blocks[i - 1], &behind = blocks[i];
      for (size_t k = 0; k < before.outputs.size(); ++k) {
        join({micro, i - 1, before.outputs[k]}, {micro, i, behind.inputs[k]});
        join({micro, i, behind.input_gradients[k]}, {micro, i - 1, before.output_gradients[k]});
      }
    }
  }

  void join(Storage first, Storage second) {
    if (first.number == 0 || second.number == 0) return;
    const auto to = find(first), from = find(second);
    if (from != to) same_[from] = to;
  }

  std::map<Storage, Storage> same_;
};

struct StageMoment {
  Storage storage;
  const Event* event;
};

/// The events of a step, in their order.
class Step {
 public:
  Step(std::span<const Blocks> micro_batches, std::span<const Action> order) : storages_(micro_batches) {
    for (const auto& [what, block, micro] : order) {
      const auto& blocks = micro_batches[micro];
      if (what == Action::What::weights) {
        begin(Phase::backward);
        add(micro, block, blocks[block].weights);
        continue;
      }
      if (what == Action::What::end) {
        end(micro, block, blocks);
        continue;
      }
      const bool is_forward = what == Action::What::forward;
      begin(is_forward ? Phase::forward : Phase::backward);
      if (!is_forward && block + 1 == blocks.size()) backward_of_[micro] = moments_.size();
      add(micro, block, is_forward ? blocks[block].forward : blocks[block].backward);
      if (is_forward || block > 0) continue;
      for (size_t i = blocks.size(); i-- > 0;) end(micro, i, blocks);
    }
    begin(Phase::optimizer);
    note_ends();
  }

  /// enter(phase) when a phase begins, grow(entry) when a storage is allocated, shrink(entry) when its last holder lets
  /// it go.
  template <class Enter, class Grow, class Shrink>
  void play(const Enter& enter, const Grow& grow, const Shrink& shrink) const {
    auto next = phases_.begin();
    for (size_t i = 0; i <= moments_.size(); ++i) {
      for (; next != phases_.end() && next->first == i; ++next) enter(next->second);
      if (i == moments_.size()) return;
      const auto& life = lives_.at(moments_[i].storage);
      if (life.born == kNever) continue;  // the input of the first block: others hold it
      if (i == life.born) grow(life.entry);
      if (i == life.gone) shrink(life.entry);
    }
  }

 private:
  struct Life {
    detail::Entry entry;  // with its last category
    size_t born = kNever, gone = kNever;
  };
  static constexpr size_t kNever = ~size_t{0};

  void begin(Phase phase) {
    const auto current = phases_.empty() ? Phase::forward : phases_.back().second;
    if (phase != current) phases_.emplace_back(moments_.size(), phase);
  }

  void add(size_t micro, size_t block, const std::vector<Event>& events) {
    for (const auto& event : events) moments_.push_back({storages_.find({micro, block, event.number}), &event});
  }

  /// Its graph goes, if it has not gone yet. What backward of the last block started from is let go first.
  void end(size_t micro, size_t block, const Blocks& blocks) {
    if (!ended_.emplace(micro, block).second) return;
    if (block + 1 == blocks.size() && blocks.back().holds_root) {
      keep_root(storages_.find({micro, block, blocks.back().output_gradients.at(0)}), backward_of_[micro]);
    }
    add(micro, block, blocks[block].end);
  }

  /// libtorch holds the gradient of the loss until backward is over.
  void keep_root(Storage root, size_t backward) {
    for (size_t i = backward; i < moments_.size(); ++i) {
      if (moments_[i].storage != root || moments_[i].event->what != Event::What::free) continue;
      std::rotate(moments_.begin() + static_cast<std::ptrdiff_t>(i),
                  moments_.begin() + static_cast<std::ptrdiff_t>(i) + 1, moments_.end());
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
  std::vector<StageMoment> moments_;
  std::vector<std::pair<size_t, Phase>> phases_;  // where they begin, after the first forward
  std::map<size_t, size_t> backward_of_;          // where that of a micro-batch begins
  std::set<std::pair<size_t, size_t>> ended_;     // micro-batches and blocks whose graphs have gone
  std::map<Storage, Life> lives_;
};

/// The books of a step that is played, not run.
class ComposedBooks {
 public:
  explicit ComposedBooks(const Account& held) : held_(detail::sums_of(held)), live_(held_), most_(held.live) {
    peak_.begin(live_, 0);
    levels_.push_back({.bytes = live_.all});
  }

  void enter(Phase phase) {
    note_level();
    if (phase == Phase::backward) saved_ = std::max(saved_, above_held());
    phase_ = phase;
    levels_.push_back({phase, Level::kBegin, live_.all});
    note();
  }

  void change(int block, Category category, int64_t bytes) {
    if (bytes < 0) {
      peak_.leave(live_);
      note_level();
    } else {
      grows_in_ = block;
    }
    live_.change(block, category, bytes);
    if (bytes > 0) peak_.grown(live_, 0);
    if (above_held() > highest()) block_ = block;
    auto& most = most_[static_cast<size_t>(category)];
    most = std::max(most, live_.all[static_cast<size_t>(category)]);
    note();
  }

  Composition composition() const {
    const auto of = [&](Phase phase) { return highest_[static_cast<size_t>(phase)]; };
    return {.account = detail::account_of(held_, peak_.sums(live_)),
            .block = block_,
            .forward = of(Phase::forward),
            .saved = saved_,
            .backward = of(Phase::backward),
            .highest = most_,
            .levels = levels_};
  }

 private:
  int64_t above_held() const { return live_.bytes - held_.bytes; }
  int64_t highest() const { return std::ranges::max(highest_); }
  void note_level() {
    if (grows_in_) levels_.push_back({phase_, *grows_in_, live_.all});
    grows_in_.reset();
  }
  void note() {
    auto& highest = highest_[static_cast<size_t>(phase_)];
    highest = std::max(highest, above_held());
  }

  const detail::Sums held_;
  detail::Sums live_;
  detail::Peak peak_;
  Phase phase_ = Phase::forward;
  std::array<int64_t, kPhaseNames.size()> highest_{};
  CategoryBytes most_;
  int64_t saved_ = 0;
  int block_ = 0;                // of the highest
  std::optional<int> grows_in_;  // the block in which it grows
  Levels levels_;
};

}  // namespace

Composition highest_of(Composition one, Composition other) {
  auto levels = std::move(one.levels);
  levels.insert(levels.end(), other.levels.begin(), other.levels.end());
  if (one.account.peak_bytes() < other.account.peak_bytes()) std::swap(one, other);
  for (size_t i = 0; i < one.highest.size(); ++i) one.highest[i] = std::max(one.highest[i], other.highest[i]);
  one.levels = std::move(levels);
  return one;
}

std::vector<Action> forward_and_backward(size_t blocks, size_t micro_batch) {
  std::vector<Action> order;
  for (size_t i = 0; i < blocks; ++i) order.push_back({Action::What::forward, i, micro_batch});
  for (size_t i = blocks; i-- > 0;) order.push_back({Action::What::backward, i, micro_batch});
  return order;
}

Composition compose(const std::vector<BlockRecord>& blocks, const Account& held, std::span<const Change> update) {
  return compose({&blocks, 1}, forward_and_backward(blocks.size()), held, update);
}

Composition compose(std::span<const std::vector<BlockRecord>> micro_batches, std::span<const Action> order,
                    const Account& held, std::span<const Change> update) {
  ComposedBooks books(held);
  const auto enter = [&](Phase phase) {
    books.enter(phase);
    if (phase != Phase::optimizer) return;
    for (const auto& one : update) {
      books.change(one.block, one.category, one.bytes);
      books.change(one.block, one.category, -one.bytes);
    }
  };
  Step(micro_batches, order)
      .play(
          enter, [&](const auto& entry) { books.change(entry.block, entry.category, entry.bytes); },
          [&](const auto& entry) { books.change(entry.block, entry.category, -entry.bytes); });
  return books.composition();
}

}  // namespace tandem::memory
