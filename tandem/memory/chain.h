#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/tensor.h"

namespace torch::nn {
class Module;
class SequentialImpl;
}  // namespace torch::nn

namespace tandem::memory {

/// What one block passes to the next: the main value, then shortcuts that are still open, so that a chain may be cut
/// inside a residual block.
using Flow = std::vector<Tensor>;

class BlockRunner;

/// A named part of a model. libtorch's modules have no hooks for forward, and no virtual forward: what wraps a part of
/// a model (a timeline, recomputation, sharding, a pipeline's stages) wraps blocks. `forward` keeps alive what it uses.
struct Block {
  std::string name;
  std::vector<std::shared_ptr<torch::nn::Module>> modules;  // whose parameters and buffers it uses; may be shared
  std::function<Flow(const Flow&)> forward;
  std::vector<Block> parts = {};  // that do the same one after the other, under the same name; empty: it cannot be cut
  BlockRunner* runner = nullptr;  // who runs it, with its neighbours of the same (block_runner.h); null: run() does

  bool ends_run = false;  // the block behind it in the chain runs at another time: they are of two stages of a pipeline

  /// Where its output lies in the whole, of which a dim is divided over ranks.
  struct Part {
    int64_t dim, first, total;
  };
  std::optional<Part> output = {};  // nullopt: it is whole
};

/// Is told of each block that run() has run, while it is set on a thread: also of parts, and of blocks whose forward is
/// computed again.
class BlockObserver {
 public:
  virtual ~BlockObserver() = default;
  virtual void ran(const Block& block, const Flow& output) = 0;
};

/// Sets it while the scope lives.
class BlockObserverScope {
 public:
  explicit BlockObserverScope(BlockObserver* observer);
  ~BlockObserverScope();
  BlockObserverScope(const BlockObserverScope&) = delete;
  BlockObserverScope& operator=(const BlockObserverScope&) = delete;

 private:
  BlockObserver* before_;
};

/// A block that takes and gives one tensor.
Block make_block(std::string name, std::vector<std::shared_ptr<torch::nn::Module>> modules,
                 std::function<Tensor(const Tensor&)> forward);

/// A block that runs its parts, of which there is at least one.
Block make_block(std::string name, std::vector<Block> parts);

/// All of its modules. A tensor that two modules share comes twice.
std::vector<Tensor> parameters_of(const Block& block);
std::vector<Tensor> buffers_of(const Block& block);

/// When backward reaches `output`, it enters the block with this number (base/context.h). Has no effect on an output
/// without gradient.
void mark_backward(const Tensor& output, int block);

/// A model as blocks that run one after the other.
struct Chain {
  std::vector<Block> blocks;
};

/// Runs the blocks. Each runs in a BlockScope of its name, and backward enters the blocks in reverse order, so that the
/// memory meter counts by block.
///
///   forward   stem ──▶ layer1.0 ──▶ layer1.1 ──▶ ... ──▶ head
///   backward  stem ◀── layer1.0 ◀── layer1.1 ◀── ... ◀── head ◀── block of the caller
Flow run(const Chain& chain, Flow input);

/// The same for a chain whose ends are one value. Throws c10::ValueError if its last block leaves shortcuts open.
Tensor run(const Chain& chain, Tensor input);

/// One block for each child of the container, called "0", "1", ... Each child must take and return one tensor.
Chain chain_of(const std::shared_ptr<torch::nn::SequentialImpl>& sequential);

/// The same chain, with each block that has parts cut into them.
Chain in_parts(const Chain& chain);

/// A chain of one block, for a module of any kind.
Chain chain_of(const std::string& name, const std::shared_ptr<torch::nn::Module>& module,
               std::function<Tensor(const Tensor&)> forward);

/// What a block takes in one forward and backward at a certain batch size.
struct Cost {
  std::string name;
  int64_t parameters = 0, buffers = 0;  // numbers; those of a shared module count in each block
  int64_t output = 0;                   // bytes of what it passes on, unless that is its input
  int64_t saved = 0;                    // bytes kept for backward, besides input and output
  int64_t forward_extra = 0;            // bytes at its peak in forward, above output and saved
  int64_t backward_extra = 0;           // bytes at its peak in backward, above those at its beginning
  double forward = 0, backward = 0;     // seconds
};

/// Runs each block of the chain forward and backward, and measures it: what rehearse() records (rehearsal.h), in sums.
/// The chain's modules must be in training mode to be measured in it.
std::vector<Cost> measure(const Chain& chain, const Flow& input);

}  // namespace tandem::memory
