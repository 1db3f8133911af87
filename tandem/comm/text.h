#pragma once
#include <string>

#include "tandem/comm/process_group.h"

namespace tandem::comm {

/// The root's text on all ranks; the others' is not looked at. Collective.
std::string broadcast_text(const std::string& own, int root, ProcessGroup& group, Where where = Where::current());

/// The text of the lowest rank whose text is not empty, on all ranks; "" when there is none. Collective.
std::string first_text(const std::string& own, ProcessGroup& group, Where where = Where::current());

}  // namespace tandem::comm
