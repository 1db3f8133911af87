#pragma once
#include <ATen/ATen.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tandem/comm/split.h"
#include "tandem/evaluation/samples.h"

namespace tandem::evaluation::test {

/// normal: no two alike. copies: seven rows again and again. near: the same, no two quite alike, so that similarities
/// differ by less than float32 products are off. integers: -1..1, where most similarities are shared.
enum class Kind { normal, copies, near, integers };
constexpr Kind kKinds[] = {Kind::normal, Kind::copies, Kind::near, Kind::integers};

struct Recipe {
  Kind kind;
  at::ScalarType dtype;
  int64_t dim;
  int num_identities;
};

inline Samples draw(const Recipe& recipe, int64_t n, unsigned seed) {
  const bool has_copies = recipe.kind == Kind::copies || recipe.kind == Kind::near;
  std::mt19937 random(has_copies ? 1 : seed), labels(seed);
  std::normal_distribution<double> normal;
  const int64_t num_drawn = has_copies ? 7 : n;
  std::vector<double> numbers;
  for (int64_t i = 0; i < num_drawn * recipe.dim; ++i)
    numbers.push_back(recipe.kind == Kind::integers ? double(random() % 3) - 1 : normal(random));
  std::vector<int64_t> identity, camera, row;
  for (int64_t i = 0; i < n; ++i) {
    identity.push_back(int64_t(labels() % (recipe.num_identities + 1)) - 1);  // -1: nobody's
    camera.push_back(int64_t(labels() % 3));
    row.push_back(has_copies ? int64_t(labels() % 7) : i);
  }
  auto features =
      at::tensor(numbers, at::kDouble).view({num_drawn, recipe.dim}).index_select(0, at::tensor(row, at::kLong));
  if (recipe.kind == Kind::near) {
    auto* number = features.mutable_data_ptr<double>();
    for (int64_t i = 0; i < features.numel(); ++i) number[i] *= 1 + 3e-7 * normal(labels);
  }
  return {features.to(recipe.dtype), at::tensor(identity, at::kLong), at::tensor(camera, at::kLong)};
}

/// Over ranks, `empty` without any when there are others.
inline std::vector<int64_t> uneven_sizes(int64_t n, int world, int empty) {
  if (world == 1) return {n};
  auto sizes = comm::split_sizes(n, world - 1);
  sizes.insert(sizes.begin() + empty % world, 0);
  return sizes;
}

inline Samples part(const Samples& whole, const std::vector<int64_t>& sizes, int rank) {
  int64_t begin = 0;
  for (int before = 0; before < rank; ++before) begin += sizes[before];
  const auto cut = [&](const Tensor& x) { return x.defined() ? x.narrow(0, begin, sizes[rank]) : x; };
  return {cut(whole.features), cut(whole.identity), cut(whole.camera)};
}

/// All of them, [Q][G], by plain loops.
inline std::vector<std::vector<double>> all_similarities(const Samples& a, const Samples& b, bool normalise) {
  const auto x = a.features.to(at::kDouble).contiguous(), y = b.features.to(at::kDouble).contiguous();
  const auto product = [dim = x.size(1)](const double* one, const double* other) {
    double sum = 0;
    for (int64_t k = 0; k < dim; ++k) sum += one[k] * other[k];
    return sum;
  };
  const auto factors = [&](const Tensor& rows) {
    std::vector<double> all;
    for (int64_t i = 0; i < rows.size(0); ++i) {
      const auto* row = rows.const_data_ptr<double>() + i * rows.size(1);
      const double length = std::sqrt(product(row, row));
      all.push_back(!normalise ? 1 : length > 0 ? 1 / length : 0);
    }
    return all;
  };
  const auto of_x = factors(x), of_y = factors(y);
  std::vector<std::vector<double>> similarities(x.size(0));
  for (int64_t i = 0; i < x.size(0); ++i) {
    for (int64_t j = 0; j < y.size(0); ++j) {
      const auto *one = x.const_data_ptr<double>() + i * x.size(1), *other = y.const_data_ptr<double>() + j * x.size(1);
      similarities[i].push_back(product(one, other) * (of_x[i] * of_y[j]));
    }
  }
  return similarities;
}

inline std::vector<int64_t> numbers_of(const Tensor& x) {
  if (!x.defined()) return {};
  return {x.const_data_ptr<int64_t>(), x.const_data_ptr<int64_t>() + x.numel()};
}

/// Equal, or the same number in another order of summation.
inline bool is_near(double a, double b) { return a == b || std::abs(a - b) <= 1e-13; }

inline std::string name_of(const Recipe& recipe, bool normalise) {
  return "kind " + std::to_string(int(recipe.kind)) + ", " + toString(recipe.dtype) +
         (normalise ? ", cosine" : ", product");
}

}  // namespace tandem::evaluation::test
