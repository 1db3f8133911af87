#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "tandem/kernels/grid/target_bodies.h"
#include "tests/kernels/grids.h"

namespace tandem::kernels {

/// The numbers of all targets, one after another.
inline std::vector<double> flat(const std::vector<TargetNumbers>& targets) {
  std::vector<double> numbers(targets.size() * sizeof(TargetNumbers) / sizeof(double));
  if (!targets.empty()) memcpy(numbers.data(), targets.data(), targets.size() * sizeof(TargetNumbers));
  return numbers;
}

/// `count` targets of a batch, in a block that is not the first: classes of 3 and of 1, between classes without.
template <class S>
struct TargetCase {
  using T = AbnNumber<S>;
  static constexpr int64_t kFirst = 40;
  static constexpr double kScale = 3;

  explicit TargetCase(int64_t count) : columns(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count + 16)))) {
    for (int64_t i = 0; i < count; starts.push_back(i)) {
      const int64_t place = kFirst + 2 * class_count(), end = std::min(i + (class_count() % 2 == 0 ? 1 : 3), count);
      for (; i < end; ++i) {
        rows.push_back((5 * i + 3) % columns);
        places.push_back(place);
      }
    }
    block_rows = 2 * class_count() + 1;
    products = drawn_as<S>(1, block_rows * columns, 1);
    factors = drawn_as<T>(2, block_rows, 1);
    for (auto& factor : factors) factor += factor < 0 ? -1 : 1;
    for (int64_t i = 0; i < count; ++i) draw(i);
  }

  int64_t count() const { return static_cast<int64_t>(rows.size()); }
  int64_t class_count() const { return static_cast<int64_t>(starts.size()) - 1; }
  T factor(int64_t i) const { return factors[places[i] - kFirst]; }
  S& stored(int64_t i) { return products[(places[i] - kFirst) * columns + rows[i]]; }
  double product(int64_t i) { return widened(stored(i)); }
  double size(int64_t i) const { return kScale * targets[i].feature_length * targets[i].weight_length; }
  Block<T, S> block() { return {products.data(), factors.data(), block_rows, columns}; }
  TargetEntries<T, S> entries() { return {rows.data(), places.data(), kFirst, block()}; }

  int64_t columns, block_rows = 0;
  std::vector<int64_t> rows, places, starts{0, 0};  // the first class has no target
  std::vector<S> products;
  std::vector<T> factors;
  std::vector<TargetNumbers> targets;

 private:
  /// Any numbers, with lengths 1 .. 1.5 and cosines all over -1 .. 1.
  void draw(int64_t i) {
    const auto n = drawn_as<double>(100 + i, 9, 2);
    targets.push_back({n[0] / 2, factor(i), 1.25 + n[1] / 8, 1.25 + n[2] / 8, n[3], n[4], n[5], n[6], n[7], n[8]});
    const double cosine = 0.97 * std::cos(0.2 + 2.4 * static_cast<double>(i));
    stored(i) = stored_as<S>(cosine * size(i) / static_cast<double>(factor(i)));
  }
};

}  // namespace tandem::kernels
