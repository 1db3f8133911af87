#pragma once
#include <array>
#include <vector>

#include "tandem/base/rows.h"

namespace tandem::train::detail {

/// SGD's updates for rows of a matrix that have no gradient. Momentum and weight decay still move such rows, by a
/// linear map that is the same for all rows. The map is applied late, when a row is next used:
///
///   step            1    2    3    4    5
///   row 7 used      x              x           before step 4, the product of maps 2 and 3 is applied
///
///   (w, v) after a step = M (w, v),  v' = momentum v + decay w,  w' = w - lr (nesterov ? decay w + momentum v' : v')
///
/// Memory: 4 bytes per row, and the products of maps from each of the last steps to now. Every kLongest steps all rows
/// are updated.
class LazyDecay {
 public:
  static constexpr int64_t kLongest = 256;

  /// `momentum`: undefined for plain SGD. Both tensors are changed in place.
  LazyDecay(Tensor weight, Tensor momentum, double momentum_factor, double weight_decay, bool nesterov);

  /// Applies the late updates of these rows, which then equal those of a dense optimizer. The rows take part in the
  /// next step.
  void prepare(const Rows& rows);

  /// Ends the step.
  void end_step(double learning_rate);

  /// Skips the step: the rows that were prepared for it take part in no step.
  void drop_step();

  /// Applies all late updates: all rows then equal those of a dense optimizer.
  void settle();

 private:
  using Map = std::array<double, 4>;  // 2 x 2, row-major: new w from (w, v), new v from (w, v)

  Map map_of(double learning_rate) const;
  void move(const Rows& rows);

  Tensor weight_, momentum_;
  double momentum_factor_, weight_decay_;
  bool nesterov_;
  Tensor done_;             // [rows] int32: steps since the last settle() that the row has got
  std::vector<Map> since_;  // [i]: product of the maps after step i
};

}  // namespace tandem::train::detail
