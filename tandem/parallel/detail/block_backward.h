#pragma once
#include <optional>

#include "tandem/memory/chain.h"

namespace tandem::parallel::detail {

/// Follows a backward from block to block of a chain, by the gradients of the blocks' outputs: those of block k are
/// there when backward has ended in block k + 1 and goes on in block k.
///
///   gradient of output   2          1                   0
///   calls                enter(2)   leave(2) enter(1)   leave(1) enter(0)   end of backward: leave(0) end()
///
/// That leaves the right block because autograd runs nodes in the reverse order of their making, and adds gradients to
/// leaves before all else. A parameter must therefore be used within its block only.
class BlockBackward : public std::enable_shared_from_this<BlockBackward> {
 public:
  virtual ~BlockBackward() = default;

  /// What backward leaves of a block for later (memory/weight_work.h): gradients that it has made already.
  struct Left {
    std::vector<std::pair<Tensor, Tensor>> made;  // parameters, gradients
  };

  /// Must be called in forward with what a block takes and gives. Returns whether backward will come to the block:
  /// values without a gradient are skipped, and those that it hands on as they are, which are another block's. `left`:
  /// for enter() and leave(); null: its backward is whole.
  bool watch(size_t block, const memory::Flow& input, const memory::Flow& output, std::shared_ptr<Left> left = nullptr);

  /// Whether this thread works for a backward, such as in a forward that it repeats.
  static bool is_in_backward();

  /// Abandons the block in which a backward was when it ended with an exception, if there is one.
  void end_at_once();

 private:
  virtual void enter(size_t block, Left* left) = 0;
  virtual void leave(size_t block, Left* left) = 0;
  virtual void abandon(size_t block) = 0;
  virtual void end() = 0;

  void reach(size_t block, const std::shared_ptr<Left>& left);
  void leave_open_block();

  int backward_ = -1;            // its number in the process
  std::optional<size_t> block_;  // in which it is
  std::shared_ptr<Left> left_;   // of it
};

}  // namespace tandem::parallel::detail
