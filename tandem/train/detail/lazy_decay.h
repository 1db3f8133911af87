#pragma once
#include <array>
#include <vector>

#include "tandem/base/rows.h"

namespace tandem::train::detail {

/// SGD's steps for rows of a matrix that have no gradient: momentum and weight decay move them all the same, by a map
/// that is linear and equal for all rows. It is put off until a row is wanted:
///
///   step            1    2    3    4    5
///   row 7 wanted    x              x           after 4 only the product of maps 2, 3 is applied, then step 4 itself
///
///   (w, v) after a step = M (w, v),  v' = momentum v + decay w,  w' = w - lr (nesterov ? decay w + momentum v' : v')
///
/// Keeps 4 bytes a row, and the products from each of the last steps to now; every kLongest steps all rows are moved.
class LazyDecay {
 public:
  static constexpr int64_t kLongest = 256;

  /// `momentum` undefined: plain SGD. Both tensors are changed in place.
  LazyDecay(Tensor weight, Tensor momentum, double momentum_factor, double weight_decay, bool nesterov);

  /// These rows are as a dense optimizer has them, and take part in the coming step.
  void prepare(const Rows& rows);

  /// The step is done.
  void end_step(double learning_rate);

  /// The step is left out: the rows that were prepared for it take part in no step.
  void drop_step();

  /// All rows are as a dense optimizer has them.
  void settle();

 private:
  using Map = std::array<double, 4>;  // row by row: w from (w, v), v from (w, v)

  Map map_of(double learning_rate) const;
  void move(const Rows& rows);

  Tensor weight_, momentum_;
  double momentum_factor_, weight_decay_;
  bool nesterov_;
  Tensor done_;             // [rows] int32: steps since the last settling that the row has seen
  std::vector<Map> since_;  // [i]: from after step i to now
};

}  // namespace tandem::train::detail
