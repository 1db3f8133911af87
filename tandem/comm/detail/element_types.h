#pragma once
#include "tandem/comm/collectives.h"

// Which numbers the operators take: refused at once and alike on all ranks, where Gloo would say so in the middle.
namespace tandem::comm::detail {

/// Throws c10::ValueError for a type that cannot be reduced: float, double, half, bfloat16 and integers of 8, 32 and
/// 64 bits can; a mean wants one of the first four.
void check_reducible(const Tensor& x, const char* operation, Reduce op);

/// Throws c10::ValueError for a type that Gloo cannot move: those above and bool. Between threads all types move.
void check_movable(const Tensor& x, const char* operation, const ProcessGroup& group);

}  // namespace tandem::comm::detail
