#pragma once
#include <vector>

namespace tandem {

/// The median; of an even number of values the upper one of the two in the middle. 0 if `values` is empty.
double median(std::vector<double> values);

}  // namespace tandem
