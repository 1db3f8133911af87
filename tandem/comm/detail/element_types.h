#pragma once
#include "tandem/comm/collectives.h"

// Element types that the operators support. The checks run before anything is sent and fail on all ranks alike; Gloo
// would fail in the middle of an operation.
namespace tandem::comm::detail {

/// Throws c10::ValueError if the type of x cannot be reduced. Supported are float, double, half, bfloat16, and integers
/// of 8, 32 and 64 bits; a mean supports the first four only.
void check_reducible(const Tensor& x, const char* operation, Reduce op);

/// Throws c10::ValueError if the group cannot send the type of x. Sockets support the types above and bool, other
/// transports all types.
void check_movable(const Tensor& x, const char* operation, const ProcessGroup& group);

}  // namespace tandem::comm::detail
