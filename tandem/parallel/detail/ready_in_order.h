#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/parallel/detail/gradient_watch.h"

namespace tandem::parallel::detail {

/// Follows a backward, and tells when the gradients of lists of parameters are complete, always in the order of the
/// lists: the same on all ranks, whatever the order in which gradients come.
///
///   lists                {a b}  {c}  {d e}
///   gradients come       c   a   e   b               d
///   ready(list)                      ready(0)        ready(2)
///                                    ready(1)
class ReadyInOrder {
 public:
  /// All parameters must require a gradient. A list may be empty. `ready` is called on the thread that runs backward.
  ReadyInOrder(const std::vector<std::vector<Tensor>>& lists, std::function<void(size_t list)> ready);
  /// From now on, gradients that come are followed. One that comes when its list is ready throws c10::Error within
  /// backward.
  void begin();

  /// Calls ready() for the lists that are not, such as those of parameters without a gradient. Gradients that come are
  /// not followed any more.
  void end();

  /// Gradients that come are not followed any more, and ready() is not called for what is missing.
  void drop();

 private:
  struct Progress;

  std::shared_ptr<Progress> progress_;  // also of the watches
  std::vector<GradientWatch> watches_;
};

}  // namespace tandem::parallel::detail
