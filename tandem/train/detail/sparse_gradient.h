#pragma once
#include "tandem/train/parameter.h"

namespace tandem::train::detail {

/// Replaces a sparse .grad that names a row several times, as of several micro-batches, by one that names each row
/// once. Memory: a bit a row of the parameter; where a row comes again, a second gradient for a moment.
void join_rows(const Tensor& parameter);

/// join_rows() for each.
void join_rows(const std::vector<Parameter>& parameters);

}  // namespace tandem::train::detail
