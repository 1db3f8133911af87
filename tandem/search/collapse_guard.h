#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "tandem/storage/fields.h"
#include "tandem/train/parameter.h"

namespace tandem::search {

/// The largest eigenvalue of a symmetric matrix, of which only products with vectors are known, to `tolerance` of its
/// size: Lanczos' method with full orthogonalisation, from a vector of this seed. `product` takes and gives float64
/// [size] on the CPU; all ranks that call it must give it the same vectors, and do.
double largest_eigenvalue(const std::function<Tensor(const Tensor& vector)>& product, int64_t size,
                          double tolerance = 1e-7, uint64_t seed = 1);

struct GuardOptions {
  int64_t window = 5;    // tests over which the eigenvalue is averaged
  int64_t distance = 4;  // tests back, with whose average it is compared
  double ratio = 1.3;    // by which it may rise meanwhile
  int64_t first = 10;    // tests before it acts
};

/// Watches a search for collapse into skip connections, which a rise of the largest eigenvalue of the Hessian of the
/// validation loss in the alphas announces. Then it sets the alphas back to those of `distance` tests before, for good.
/// Memory: distance + 1 times the alphas. Source: Zela et al. 2020, Understanding and Robustifying Differentiable
/// Architecture Search (arXiv:1909.09656), section 4.3.
class CollapseGuard {
 public:
  CollapseGuard(const std::vector<train::Parameter>& alphas, const GuardOptions& options);

  /// After a test at `step`. Returns true if the alphas have been set back now.
  bool add(double eigenvalue, int64_t step);

  /// True once the alphas have been set back: they must not be moved any more.
  bool has_acted() const { return acted_at_.has_value(); }
  std::optional<int64_t> acted_at() const { return acted_at_; }

  /// What a checkpoint must hold.
  std::vector<train::Parameter> state() const;
  storage::Fields numbers() const;
  void set_numbers(const storage::Fields& numbers);

 private:
  double mean(int64_t tests_back) const;

  std::vector<train::Parameter> alphas_;
  GuardOptions options_;
  Tensor values_;                // float64 [window + distance], the last ones, the newest last
  std::vector<Tensor> earlier_;  // [distance + 1, edges, operations] each, the newest last
  int64_t tests_ = 0;
  std::optional<int64_t> acted_at_;
};

}  // namespace tandem::search
