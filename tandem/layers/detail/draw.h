#pragma once
#include <string>

#include "tandem/base/tensor.h"
#include "tandem/parallel/placement.h"

namespace tandem::layers::detail {

/// Fills a part of a parameter, uniformly in [-bound, bound), as the whole would be filled.
void draw_part(const Tensor& part, const parallel::Split& split, double bound, uint64_t seed, const std::string& name);

/// The same with normal numbers.
void draw_normal_part(const Tensor& part, const parallel::Split& split, double deviation, uint64_t seed,
                      const std::string& name);

void draw_whole(const Tensor& tensor, double bound, uint64_t seed, const std::string& name);

}  // namespace tandem::layers::detail
