#pragma once
#include <vector>

#include "tandem/base/tensor.h"

namespace tandem::train::detail {

/// Lets libtorch's fused optimizers compute every number in a vector. They round the last numbers of a tensor, which
/// fill no vector, in another way than the others; a number's update would depend on where its tensor has been cut. The
/// constructor moves these numbers into tensors of 64 bytes, write_back() moves them back.
class WholeVectors {
 public:
  using List = std::vector<Tensor>;

  /// `lists`: what the optimizer reads and changes of each weight, contiguous and of equal sizes; a list may be empty.
  /// `steps`: one for each weight, only read, or none. Tensors are replaced and added. Weights with a tensor that is
  /// not contiguous stay as they are.
  WholeVectors(const std::vector<List*>& lists, List& steps);

  void write_back() const;

  /// What one takes for a weight in so many lists, if its tensors are contiguous.
  static int64_t bytes(const Tensor& weight, int64_t lists);

 private:
  struct Rest {
    Tensor original, vector;
  };
  std::vector<Rest> rests_;
};

}  // namespace tandem::train::detail
