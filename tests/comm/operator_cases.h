#pragma once
#include <string>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"

namespace tandem::test {

/// An operator with a way to use it: what a rank brings for a whole of so many rows, of three columns.
struct OperatorCase {
  std::string name;
  bool has_root = false, is_linear = true;
  int64_t (*rows_of)(int64_t rows, int rank, int size);
  Tensor (*apply)(const Tensor& x, comm::ProcessGroup& group, int root);
};

const std::vector<OperatorCase>& operator_cases();

/// The rank's input, numbers unlike for each rank and place.
Tensor input_of(const OperatorCase& one, int64_t rows, int rank, int size);

struct Derivatives {
  Tensor value, gradient;  // gradient: of <value, g>, by x
  Tensor by_x, by_g;       // of <gradient, h>
};

/// Collective. g: like the value; h: like x.
Derivatives derivatives_of(const OperatorCase& one, const Tensor& x, const Tensor& g, const Tensor& h,
                           comm::ProcessGroup& group, int root);

/// <A x, y> = <x, A' y>, summed over the ranks, in float64, for each linear operator, each root, and numbers of rows
/// that divide by no number of ranks. Collective. Gives what is wrong, one line a case.
std::string adjoint_faults(comm::ProcessGroup& group);

}  // namespace tandem::test
