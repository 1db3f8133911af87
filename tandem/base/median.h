#pragma once
#include <vector>

namespace tandem {

/// The middle one, of an even number the upper; 0 of none.
double median(std::vector<double> values);

}  // namespace tandem
