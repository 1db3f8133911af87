#include "tandem/evaluation/detail/checks.h"

#include <ATen/ATen.h>

namespace tandem::evaluation::detail {
namespace {

const char* type_of(const Tensor& x) { return x.defined() ? toString(x.scalar_type()) : "undefined"; }

}  // namespace

void check_features(const std::string& what, const Tensor& features) {
  TORCH_CHECK_TYPE(
      features.defined() && (features.scalar_type() == at::kFloat || features.scalar_type() == at::kDouble), what,
      " are ", type_of(features), ", wanted Float or Double");
  TORCH_CHECK_VALUE(features.dim() == 2, what, " are ", features.sizes(), ", wanted [n, D]");
  TORCH_CHECK_VALUE(features.is_cpu(), what, " are on ", features.device(), ", wanted cpu");
}

void check_column(const std::string& what, const Tensor& numbers, at::ScalarType type, int64_t n) {
  TORCH_CHECK_TYPE(numbers.defined() && numbers.scalar_type() == type, what, " is ", type_of(numbers), ", wanted ",
                   toString(type));
  TORCH_CHECK_VALUE(numbers.dim() == 1 && numbers.size(0) == n, what, " is ", numbers.sizes(), ", wanted [", n, "]");
  TORCH_CHECK_VALUE(numbers.is_cpu(), what, " is on ", numbers.device(), ", wanted cpu");
}

void check_samples(const std::string& what, const Samples& samples) {
  check_features(what + ": features", samples.features);
  const int64_t n = samples.features.size(0);
  check_column(what + ": identity", samples.identity, at::kLong, n);
  if (samples.camera.defined()) check_column(what + ": camera", samples.camera, at::kLong, n);
  const auto bad = samples.identity.lt(-1).nonzero();
  if (bad.size(0) == 0) return;
  const auto row = bad[0][0].item<int64_t>();
  TORCH_CHECK_VALUE(false, what, ": identity[", row, "] is ", samples.identity[row].item<int64_t>(),
                    ", wanted -1 (nobody's) or more");
}

void check_block_bytes(const std::string& what, int64_t block_bytes) {
  TORCH_CHECK_VALUE(block_bytes >= 1, what, ": block_bytes is ", block_bytes, ", wanted 1 or more");
}

void check_rates(const std::string& what, const std::vector<double>& rates) {
  for (size_t i = 0; i < rates.size(); ++i)
    TORCH_CHECK_VALUE(rates[i] >= 0 && rates[i] <= 1, what, "[", i, "] is ", rates[i], ", wanted 0..1");
}

}  // namespace tandem::evaluation::detail
