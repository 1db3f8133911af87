#pragma once
#include <filesystem>

#include "tandem/cli/run/history.h"
#include "tandem/cli/run/trained.h"
#include "tandem/job/job.h"

namespace tandem::cli {

/// Writes report.html and memory.svg to the run's folder. Returns the path of report.html. `test`: the test set, whose
/// images the answers are of; null: there is none.
std::filesystem::path write_run_report(const job::Job& job, const Trained& trained, const RunCurves& curves,
                                       const data::Dataset* test);

}  // namespace tandem::cli
