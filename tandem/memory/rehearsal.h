#pragma once
#include <span>
#include <vector>

#include "tandem/memory/chain.h"
#include "tandem/memory/levels.h"
#include "tandem/memory/meter.h"

namespace tandem::memory {

/// What one block allocates and frees in a step, in order. Storages are known by the numbers of their allocations,
/// which no other storage of this block has.
struct BlockRecord {
  std::vector<Event> forward, backward;   // `forward` ends when nobody but the graph holds its input and output
  std::vector<Event> end;                 // when the graph goes
  std::vector<Event> weights;             // then, when the gradients are worked out that backward left (WeightWork)
  std::vector<uint64_t> inputs, outputs;  // storages of what it takes and gives
  std::vector<uint64_t> output_gradients, input_gradients;  // 0: there is none
  bool holds_root = true;  // its caller holds the gradient of its first output until backward is over
  int64_t returned = 0;    // bytes that it holds when its forward returns, output included
  double forward_seconds = 0, backward_seconds = 0;

  /// Seconds of forward on a nominal core, by the shapes of its products and the bytes that it allocates: the same on
  /// each machine and in each run. `nominal_after_saved`: of these, after an operation saved the last tensor for
  /// backward.
  double nominal_seconds = 0, nominal_after_saved = 0;
};

/// The same without the storages of other categories, by the last category of each.
std::vector<BlockRecord> only(std::vector<BlockRecord> records, Category category);

struct RehearsalOptions {
  /// Parameters whose gradients are given away as soon as they are complete, such as into buckets that are held
  /// already.
  std::vector<Tensor> given_away;
  std::vector<Tensor> added_to;  // parameters whose gradients are held already, and are added to
  /// Backward starts from the chain's only output, whose gradient its caller holds meanwhile, as that of a scalar.
  bool starts_at_output = false;
  bool gives_gradients = false;  // it starts from all outputs, with gradients that nobody holds (given_gradients.h)
  bool leaves_weights = false;   // backward leaves gradients of weights for later (weight_work.h)
};

/// Runs each block of the chain forward and backward, from the last to the first, and records what it allocates: what a
/// whole step would, in the memory of one block at a time. Gradients, buffers and the books of the ranks stay as they
/// are. The values of tensors are not those of a step. Memory: that of one block, a flow's, and the gradients that are
/// added to. Seconds: those of a step and of another forward. Throws c10::Error without the meter.
std::vector<BlockRecord> rehearse(const Chain& chain, const Flow& input, const RehearsalOptions& options = {});

/// What a block does for one micro-batch, from the shapes of its tensors: the same on each machine.
struct BlockWork {
  double operations = 0;  // floating-point ones, of matrix products and convolutions in a forward
  double results = 0;     // bytes of what it gives
  double weights = 0;     // bytes

  /// The same for so many times the images.
  BlockWork times(double images) const { return {operations * images, results * images, weights}; }

  /// Forward and backward on a nominal core: products three times, some passes over results and over weights.
  double nominal_seconds() const;
};

/// Of each block. `flow`: what the first takes; afterwards what the last has given. Buffers stay as they are. Needs no
/// meter.
std::vector<BlockWork> work_of(const Chain& chain, Flow& flow);

/// A change of what a rank holds that is no block's, after backward: a positive number of bytes, then the same
/// negative.
struct Change {
  int64_t bytes = 0;
  Category category = Category::other;
  int block = 0;
};

struct Composition {
  Account account;                               // live: `held`; at_peak: of the step
  int block = 0;                                 // in which the peak is
  int64_t forward = 0, saved = 0, backward = 0;  // bytes above `held`: at most in forward, at its end, in backward
  CategoryBytes highest{};                       // the most bytes of each category, each at its own moment
  Levels levels;                                 // of the step, in their order
};

/// A block runs a micro-batch.
struct Action {
  enum class What : uint8_t {
    forward,
    backward,
    end,     // its graph goes; where no action says so, after the backward of the first block
    weights  // gradients of weights that backward left
  };

  What what = What::forward;
  size_t block = 0, micro_batch = 0;
};

/// Forward of all blocks, and backward from the last to the first, of one micro-batch.
std::vector<Action> forward_and_backward(size_t blocks, size_t micro_batch = 0);

/// Of two steps: the one with the higher peak, the most of each category in either, and the levels of both.
Composition highest_of(Composition one, Composition other);

/// The memory of a whole step of the chain: forward, backward from its only output, then `update`, while gradients
/// still live. `held`: what is live before, in, and after each step. Equals what the meter measures if the same kernels
/// run, and in the same order: with one thread.
///
///   live                  loss
///     │           ▁▃▅▇█▇▅
///     │     ▁▃▅▇██       ██▇▅▃▁   update
///     │▁▃▅▇█                   ▁▁▁▁▁▂▁
///     │held ...................................
///      forward 1..n    backward n..1
///
/// A storage that two blocks know lives from where the first of them allocates it to where the last lets it go.
Composition compose(const std::vector<BlockRecord>& blocks, const Account& held, std::span<const Change> update = {});

/// The same of several micro-batches, whose blocks run in the given order: each forward of a micro-batch before its
/// backward. Micro-batches share no storage, so gradients of parameters that the first leaves must be added to by the
/// others (RehearsalOptions::added_to). `saved` is the most at the end of a forward.
///
///   F0 F1 B0 B1     forward of two micro-batches, then backward of each
Composition compose(std::span<const std::vector<BlockRecord>> micro_batches, std::span<const Action> order,
                    const Account& held, std::span<const Change> update = {});

}  // namespace tandem::memory
