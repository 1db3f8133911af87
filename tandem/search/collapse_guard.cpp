#include "tandem/search/collapse_guard.h"

#include <ATen/ATen.h>

#include "tandem/base/rng.h"

namespace tandem::search {
namespace {

constexpr const char *kTests = "search.guard_tests", *kActedAt = "search.guard_step";

/// Takes the parts along the vectors of `basis` away, twice, for what rounding has left.
void make_orthogonal(const Tensor& vector, const std::vector<Tensor>& basis) {
  for (int round = 0; round < 2; ++round) {
    for (const auto& other : basis) vector.sub_(other * vector.dot(other));
  }
}

/// Of the symmetric matrix with these numbers on the diagonal and beside it.
double largest_of(const std::vector<double>& diagonal, const std::vector<double>& beside) {
  const auto size = std::ssize(diagonal);
  auto matrix = at::zeros({size, size}, at::kDouble);
  auto* numbers = matrix.mutable_data_ptr<double>();
  for (int64_t i = 0; i < size; ++i) {
    numbers[i * size + i] = diagonal[i];
    if (i > 0) numbers[i * size + i - 1] = numbers[(i - 1) * size + i] = beside[i - 1];
  }
  return at::linalg_eigvalsh(matrix)[-1].item<double>();
}

/// Moves the rows one up, and writes the last one.
void push(const Tensor& rows, const Tensor& newest) {
  const at::NoGradGuard no_grad;
  rows.copy_(at::cat({rows.slice(0, 1), newest.to(rows.options()).unsqueeze(0)}));
}

}  // namespace

double largest_eigenvalue(const std::function<Tensor(const Tensor& vector)>& product, int64_t size, double tolerance,
                          uint64_t seed) {
  auto start = at::empty({size});
  fill_normal_(start, 1, seed, stream_of("largest_eigenvalue"));
  std::vector<Tensor> basis;
  std::vector<double> diagonal, beside;
  auto vector = start.to(at::kDouble);
  vector /= vector.norm();
  double largest = 0;
  for (int64_t i = 0; i < size; ++i) {
    basis.push_back(vector);
    auto next = product(vector).clone();
    diagonal.push_back(vector.dot(next).item<double>());
    const double before = largest;
    largest = largest_of(diagonal, beside);
    make_orthogonal(next, basis);
    const double length = next.norm().item<double>();
    const double scale = std::max(std::abs(largest), std::abs(diagonal[0]));
    constexpr int64_t kFewest = 4;
    if (length <= 1e-12 * scale || (i >= kFewest && std::abs(largest - before) <= tolerance * scale / 10)) break;
    beside.push_back(length);
    vector = next / length;
  }
  return largest;
}

CollapseGuard::CollapseGuard(const std::vector<train::Parameter>& alphas, const GuardOptions& options)
    : alphas_(alphas), options_(options), values_(at::zeros({options.window + options.distance}, at::kDouble)) {
  for (const auto& alpha : alphas_) {
    auto sizes = alpha.tensor.sizes().vec();
    sizes.insert(sizes.begin(), options.distance + 1);
    earlier_.push_back(at::zeros(sizes, alpha.tensor.options().requires_grad(false)));
  }
}

bool CollapseGuard::add(double eigenvalue, int64_t step) {
  if (has_acted()) return false;
  ++tests_;
  push(values_, at::scalar_tensor(eigenvalue, at::kDouble));
  for (size_t i = 0; i < alphas_.size(); ++i) push(earlier_[i], alphas_[i].tensor.detach());
  const bool knows_enough = tests_ >= std::max(options_.first, options_.window + options_.distance);
  if (!knows_enough || mean(0) <= options_.ratio * mean(options_.distance)) return false;
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < alphas_.size(); ++i) alphas_[i].tensor.copy_(earlier_[i][0]);
  acted_at_ = step;
  return true;
}

/// Over the window that ends so many tests back.
double CollapseGuard::mean(int64_t tests_back) const {
  return values_.narrow(0, options_.distance - tests_back, options_.window).mean().item<double>();
}

std::vector<train::Parameter> CollapseGuard::state() const {
  std::vector<train::Parameter> all = {train::Parameter::replicated("search.guard.values", values_)};
  for (size_t i = 0; i < alphas_.size(); ++i) {
    all.push_back(train::Parameter::replicated("search.guard." + alphas_[i].name, earlier_[i]));
  }
  return all;
}

storage::Fields CollapseGuard::numbers() const {
  storage::Fields numbers = {{kTests, tests_}};
  if (acted_at_) numbers.emplace_back(kActedAt, *acted_at_);
  return numbers;
}

void CollapseGuard::set_numbers(const storage::Fields& numbers) {
  if (storage::find_value(numbers, kTests) != nullptr) tests_ = storage::whole_number(numbers, kTests);
  if (storage::find_value(numbers, kActedAt) != nullptr) acted_at_ = storage::whole_number(numbers, kActedAt);
}

}  // namespace tandem::search
