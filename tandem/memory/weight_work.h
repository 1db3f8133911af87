#pragma once
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tandem/base/tensor.h"

namespace tandem::memory {

/// Gradients of weights that backward leaves for later: where backward is cut in two, the gradients of a part's inputs,
/// for which others wait, come first. Layers that run in forward while a WeightWorkScope lives leave theirs here when
/// backward comes to them; operations that know nothing of it work theirs out at once.
///
///   forward    in a scope
///   backward   gradients of inputs    ── leave() of each such layer, from the last to the first
///   run()      gradients of weights
///
/// What is left holds the layer's input and the gradient of its output. Not thread-safe: backward and run() must not
/// overlap.
class WeightWork : public std::enable_shared_from_this<WeightWork> {
 public:
  /// Gives a gradient for each of some tensors.
  using Gradients = std::function<std::vector<Tensor>()>;

  /// Called in backward. Undefined tensors, and those that require no gradient, are left out. `reads`: what `gradients`
  /// reads, which must not be written to before run().
  void leave(std::vector<Tensor> weights, std::vector<Tensor> reads, Gradients gradients);

  bool is_empty() const { return items_.empty(); }

  /// Whoever takes the gradients of a block when run() has worked them all out.
  class Ending {
   public:
    virtual ~Ending() = default;
    virtual void ended() = 0;
  };

  /// One a block, by its number (base/context.h), added in forward. Blocks that leave nothing end after the others,
  /// from the last added to the first.
  void add_ending(int block, std::shared_ptr<Ending> ending);
  std::shared_ptr<Ending> ending_of(int block) const;  // null: there is none

  /// Works all out. Those of one tensor are summed, in the order in which they were left, and then pass on as in a
  /// backward: added to .grad, with its hooks, or through the operation that made the tensor. Memory: the gradients of
  /// one tensor at a time. Throws c10::Error if something that it reads has been written to.
  void run();

 private:
  struct Item {
    std::vector<Tensor> weights;
    Gradients gradients;
    std::vector<Tensor> reads;
    std::vector<int64_t> versions;
    int block;
  };
  void run(Item& item, std::map<const c10::TensorImpl*, int>& uses, std::map<const c10::TensorImpl*, Tensor>& sums);

  std::vector<Item> items_;
  std::vector<std::pair<int, std::shared_ptr<Ending>>> endings_;
};

/// That of the calling thread's innermost scope; null: backward leaves nothing.
std::shared_ptr<WeightWork> weight_work();

/// Sets it while the scope lives; null: none.
class WeightWorkScope {
 public:
  explicit WeightWorkScope(std::shared_ptr<WeightWork> work);
  ~WeightWorkScope();
  WeightWorkScope(const WeightWorkScope&) = delete;
  WeightWorkScope& operator=(const WeightWorkScope&) = delete;

 private:
  std::shared_ptr<WeightWork> before_;
};

}  // namespace tandem::memory
