#pragma once
#include <string>
#include <vector>

#include "tandem/evaluation/samples.h"

namespace tandem::evaluation::detail {

// Each function throws c10::TypeError or c10::ValueError, with `what` as the name of the checked thing.

/// Must be [n, D], float32 or float64, on the CPU.
void check_features(const std::string& what, const Tensor& features);

/// Must be [n], of type `type`, on the CPU.
void check_column(const std::string& what, const Tensor& numbers, at::ScalarType type, int64_t n);

/// Must be as Samples describes. Does not look for features that are not finite.
void check_samples(const std::string& what, const Samples& samples);

void check_block_bytes(const std::string& what, int64_t block_bytes);

/// Each must be in 0..1.
void check_rates(const std::string& what, const std::vector<double>& rates);

}  // namespace tandem::evaluation::detail
