#pragma once
#include <vector>

#include "tandem/classifier/detail/class_blocks.h"
#include "tandem/classifier/detail/lanes.h"

namespace tandem::classifier::detail {

/// The buffers of one thread that works on blocks, one after the other.
class Lane {
 public:
  /// `has_products`: false when all products have a place elsewhere.
  Lane(const ClassBlocks& blocks, const Tensor& features, int64_t index, bool has_products);

  int64_t index() const { return index_; }

  /// Room for a block's products, [classes, columns].
  Tensor products(ClassRange classes) const { return products_.narrow(0, 0, classes.size()); }

  /// Rows of the weight as they enter the products: themselves, or rounded into this lane's buffer.
  Tensor entering(const Tensor& own_weight) const;

  /// The same; 1 / the rows' lengths go to `inverse`, where it is defined.
  Tensor measure(const Tensor& own_weight, Tensor inverse) const;

 private:
  int64_t index_;
  Tensor products_;  // [block, columns]
  Tensor rounded_;   // [block, D] in bfloat16: rows of the weight, then of its gradient; undefined: nothing is rounded
};

/// body(lane, classes) for each block: each lane on a thread of its own, lane i with blocks i, i + lanes, ...
template <class Body>
void for_each_block(const ClassBlocks& blocks, const Tensor& features, bool has_products, const Body& body) {
  const auto ranges = blocks.ranges();
  const int num_lanes = blocks.plan().lanes;
  std::vector<Lane> lanes;
  for (int index = 0; index < num_lanes; ++index) lanes.emplace_back(blocks, features, index, has_products);
  run_lanes(num_lanes, [&](int lane) {
    for (size_t i = lane; i < ranges.size(); i += lanes.size()) body(lanes[lane], ranges[i]);
  });
}

}  // namespace tandem::classifier::detail
