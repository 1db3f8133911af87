#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace tandem::cli {

using Curve = std::vector<std::pair<double, double>>;  // step, value; steps increase

struct RunCurves {
  Curve losses, rates, top1;
};

/// The part of a log.jsonl up to the step from which a run resumes.
struct RunHistory {
  RunCurves curves;
  std::vector<std::string> lines;
};

/// Reads a log up to step `last`. If steps were repeated after a resume, only the last time counts. Lines that are not
/// records are skipped. A log that is missing or cannot be read gives an empty history.
RunHistory read_history(const std::filesystem::path& log, int64_t last);

}  // namespace tandem::cli
