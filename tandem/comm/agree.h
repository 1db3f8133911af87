#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tandem/comm/collectives.h"

namespace tandem::comm {

// Small collectives for numbers and texts. They must be called on every rank of the group, in the same order. A group
// of one rank sends nothing.

/// Returns the sum, maximum or minimum of the ranks' numbers on every rank. Sends 8 bytes per rank.
int64_t reduce_number(int64_t own, Reduce op, ProcessGroup& group, flight::Where where = flight::Where::current());
double reduce_number(double own, Reduce op, ProcessGroup& group, flight::Where where = flight::Where::current());

/// Returns the root's number on every rank. The other ranks' numbers are ignored.
int64_t broadcast_number(int64_t own, int root, ProcessGroup& group, flight::Where where = flight::Where::current());

/// Returns every rank's number, in rank order, on every rank.
std::vector<int64_t> gather_numbers(int64_t own, ProcessGroup& group, flight::Where where = flight::Where::current());

/// Returns the root's text on every rank. The other ranks' texts are ignored.
std::string broadcast_text(const std::string& own, int root, ProcessGroup& group,
                           flight::Where where = flight::Where::current());

/// Returns, on every rank, the text of the lowest rank whose text is not empty; "" if all texts are empty.
std::string first_text(const std::string& own, ProcessGroup& group, flight::Where where = flight::Where::current());

/// Returns every rank's text, in rank order, on every rank.
std::vector<std::string> gather_texts(const std::string& own, ProcessGroup& group,
                                      flight::Where where = flight::Where::current());

}  // namespace tandem::comm
