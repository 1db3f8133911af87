#pragma once
#include <filesystem>
#include <span>
#include <string>

#include "tandem/memory/meter.h"

namespace tandem::cli {

/// The file of a rank's events in the run's folder.
std::filesystem::path memory_events_file(int rank);

/// A line of JSON for each event, in their order: {"seconds", "step", "phase", "what", "bytes", "live", "category",
/// "block"}. The seconds are counted from the first event.
std::string memory_events_text(std::span<const memory::Event> events);

}  // namespace tandem::cli
