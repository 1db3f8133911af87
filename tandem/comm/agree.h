#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tandem/comm/collectives.h"

namespace tandem::comm {

// Numbers and texts that the ranks tell each other. All functions are collective. A group of one sends nothing.

/// Sum, maximum or minimum of the ranks' numbers, the same on all. 8 bytes a rank.
int64_t reduce_number(int64_t own, Reduce op, ProcessGroup& group, flight::Where where = flight::Where::current());
double reduce_number(double own, Reduce op, ProcessGroup& group, flight::Where where = flight::Where::current());

/// The root's number on all ranks; the others' are not looked at.
int64_t broadcast_number(int64_t own, int root, ProcessGroup& group, flight::Where where = flight::Where::current());

/// Every rank's number, by rank, on all ranks.
std::vector<int64_t> gather_numbers(int64_t own, ProcessGroup& group, flight::Where where = flight::Where::current());

/// The root's text on all ranks; the others' are not looked at.
std::string broadcast_text(const std::string& own, int root, ProcessGroup& group,
                           flight::Where where = flight::Where::current());

/// The text of the lowest rank whose text is not empty, on all ranks; "" when there is none.
std::string first_text(const std::string& own, ProcessGroup& group, flight::Where where = flight::Where::current());

/// Every rank's text, by rank, on all ranks.
std::vector<std::string> gather_texts(const std::string& own, ProcessGroup& group,
                                      flight::Where where = flight::Where::current());

}  // namespace tandem::comm
