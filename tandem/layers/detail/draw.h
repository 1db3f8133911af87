#pragma once
#include <optional>
#include <string>

#include "tandem/base/tensor.h"
#include "tandem/parallel/placement.h"

/// Numbers for a parameter, or for a part of one, which gets those that the whole would have there. Any memory format.
namespace tandem::layers::detail {

/// In [-bound, bound).
void draw_uniform(const Tensor& tensor, const std::optional<parallel::Split>& split, double bound, uint64_t seed,
                  const std::string& name);

void draw_normal(const Tensor& tensor, const std::optional<parallel::Split>& split, double deviation, uint64_t seed,
                 const std::string& name);

}  // namespace tandem::layers::detail
