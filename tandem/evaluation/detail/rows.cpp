#include "tandem/evaluation/detail/rows.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <array>
#include <cmath>

#include "tandem/comm/collectives.h"

namespace tandem::evaluation::detail {
namespace {

/// Eight separate sums: the compiler can vectorise them without reordering any.
template <class T>
double product(const T* a, const T* b, int64_t size) {
  constexpr int64_t kLanes = 8;
  std::array<double, kLanes> sums = {};
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += double{a[i + lane]} * double{b[i + lane]};
  for (; i < size; ++i) sums[0] += double{a[i]} * double{b[i]};
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

/// Never inlined, so that all products are rounded in the same way.
[[gnu::noinline]] double product_of(const Tensor& a, int64_t i, const Tensor& b, int64_t j) {
  const int64_t dim = a.size(1);
  if (a.scalar_type() == at::kDouble)
    return product(a.const_data_ptr<double>() + i * dim, b.const_data_ptr<double>() + j * dim, dim);
  return product(a.const_data_ptr<float>() + i * dim, b.const_data_ptr<float>() + j * dim, dim);
}

std::string describe(const int64_t* kind) {
  return std::string(kind[1] ? "float64" : "float32") + " [n, " + std::to_string(kind[0]) + "] " +
         (kind[2] ? "with" : "without") + " cameras";
}

}  // namespace

Rows Rows::narrow(int64_t begin, int64_t count) const {
  return {features.narrow(0, begin, count), labels.narrow(0, begin, count), scales.narrow(0, begin, count)};
}

std::vector<std::vector<int64_t>> exchange_sizes(const std::vector<Samples>& sets, comm::ProcessGroup& group) {
  constexpr int64_t kNumbers = 4;  // size, dim, is float64, has cameras
  const int64_t num_sets = static_cast<int64_t>(sets.size());
  std::vector<int64_t> own;
  for (const auto& set : sets) {
    const auto& x = set.features;
    own.insert(own.end(), {x.size(0), x.size(1), x.scalar_type() == at::kDouble, set.camera.defined()});
  }
  const std::vector<int64_t> one_row(group.size(), 1);
  const auto all = comm::all_gather(at::tensor(own, at::kLong).unsqueeze(0), group, 0, one_row);
  const auto* numbers = all.const_data_ptr<int64_t>();
  std::vector<std::vector<int64_t>> sizes(num_sets);
  for (int64_t i = 0; i < num_sets * group.size(); ++i) {
    const auto *number = numbers + i * kNumbers, *wanted = numbers + 1;
    TORCH_CHECK_VALUE(std::equal(number + 1, number + kNumbers, wanted), "samples: set ", i % num_sets, " of rank ",
                      i / num_sets, " is ", describe(number + 1), ", wanted ", describe(wanted),
                      " like the first set of rank 0");
    sizes[i % num_sets].push_back(number[0]);
  }
  return sizes;
}

Rows make_rows(const std::string& what, const Samples& samples, bool normalise, int64_t first_key, int64_t key_step) {
  const auto features = samples.features.detach().contiguous();
  const int64_t n = features.size(0);
  const auto cameras = samples.camera.defined() ? samples.camera : at::zeros({n}, at::kLong);
  const auto labels = at::stack({samples.identity, cameras, at::arange(n, at::kLong) * key_step + first_key}, 1);
  const auto scales = at::empty({n, 2}, at::kDouble);
  auto* scale = reinterpret_cast<Rows::Scale*>(scales.mutable_data_ptr<double>());
  at::parallel_for(0, n, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double length = std::sqrt(product_of(features, i, features, i));
      const double factor = !normalise ? 1 : length > 0 ? 1 / length : 0;
      scale[i] = {factor, length * factor};
    }
  });
  for (int64_t i = 0; i < n; ++i)
    TORCH_CHECK_VALUE(std::isfinite(scale[i].length), what, ": features[", i, "] have length ", scale[i].length,
                      ", wanted a finite one");
  return {features, labels, scales};
}

double similarity(const Rows& a, int64_t i, const Rows& b, int64_t j) {
  return product_of(a.features, i, b.features, j) * (a.scale()[i].factor * b.scale()[j].factor);
}

}  // namespace tandem::evaluation::detail
