#pragma once
#include <string>

#include "tandem/data/dataset.h"
#include "tandem/job/job.h"

namespace tandem::job {

/// A warning, one line, about images that are scaled to a small part of their size because data.size was not given: the
/// default suits characters. "" if there is no need for one.
std::string size_hint(const Job& job, const data::Split& data);

}  // namespace tandem::job
