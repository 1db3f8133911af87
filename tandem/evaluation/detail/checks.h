#pragma once
#include <string>
#include <vector>

#include "tandem/evaluation/samples.h"

namespace tandem::evaluation::detail {

// Each throws c10::TypeError or c10::ValueError; `what` names the thing in the text.

/// [n, D], floating.
void check_features(const std::string& what, const Tensor& features);

/// One number of that type a row, on the CPU.
void check_column(const std::string& what, const Tensor& numbers, at::ScalarType type, int64_t n);

/// As Samples says.
void check_samples(const std::string& what, const Samples& samples);

void check_block_bytes(const std::string& what, int64_t block_bytes);

/// 0..1 each.
void check_rates(const std::string& what, const std::vector<double>& rates);

}  // namespace tandem::evaluation::detail
