#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace tandem::cli {

using Curve = std::vector<std::pair<double, double>>;  // step, value; steps rise

struct RunCurves {
  Curve losses, rates, top1;
};

/// The part of a log.jsonl that leads to the step from which a run goes on.
struct RunHistory {
  RunCurves curves;
  std::vector<std::string> lines;
};

/// Reads a log up to step `last`. Of steps that were done again only the last time counts. Lines that are no records
/// are passed over; a log that is missing or cannot be read is an empty history.
RunHistory read_history(const std::filesystem::path& log, int64_t last);

}  // namespace tandem::cli
