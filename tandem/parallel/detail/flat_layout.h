#pragma once
#include <cstddef>
#include <vector>

#include "tandem/base/box.h"
#include "tandem/base/tensor.h"

namespace tandem::parallel::detail {

/// How tensors lie one after the other in a flat tensor, each in the order in which its numbers lie in memory, and how
/// the flat is cut into equal shards. The last numbers of the flat are padding: fewer than there are shards.
///
///   tensors   a a a a a b b c c c            5 + 2 + 3 numbers
///   3 shards  0 0 0 0 1 1 1 1 2 2 2 2        of 4 numbers; 2 of the last are padding
///
/// A layout keeps the strides of its tensors, so that weights with channels last keep them. No tensor is held.
class FlatLayout {
 public:
  /// Throws c10::ValueError if the numbers of a tensor do not lie next to each other, or if the tensors have several
  /// types or devices. `shards`: 1 or more.
  FlatLayout(const std::vector<Tensor>& tensors, int shards);

  int64_t size() const { return shard_size_ * shards_; }  // numbers of the flat, padding included
  int64_t shard_size() const { return shard_size_; }
  const at::TensorOptions& options() const { return options_; }

  /// The numbers of the flat that are no tensor's.
  Tensor padding(const Tensor& flat) const;

  /// Tensor `i` as a view of the flat.
  Tensor whole(const Tensor& flat, size_t i) const;

  /// The elements `box` of a tensor: they lie next to each other in a shard, `first` numbers after its beginning.
  struct Part {
    Box box;
    int64_t first = 0;
  };

  /// What a shard holds of tensor `i`, in memory order; none if it holds nothing of it.
  std::vector<Part> parts(size_t i, int shard) const;

  /// A part of tensor `i` as a view of the shard: dense, and with the order of dims of the tensor.
  Tensor part(const Tensor& shard, size_t i, const Part& part) const;

  /// The shards that hold numbers of tensor `i`: first .. last. A tensor without numbers has none: last < first.
  struct Shards {
    int first = 0, last = -1;
  };
  Shards shards_of(size_t i) const;

 private:
  struct Place {
    std::vector<int64_t> sizes, strides;
    std::vector<int64_t> order;    // the dims, from the one with the largest stride to the one with the smallest
    int64_t first = 0, count = 0;  // numbers of the flat
  };

  std::vector<Place> places_;
  at::TensorOptions options_;
  int shards_;
  int64_t shard_size_ = 0, count_ = 0;  // numbers of a shard; of all tensors
};

}  // namespace tandem::parallel::detail
