#pragma once
#include <filesystem>
#include <string>

namespace tandem::flight {

/// Reads the flight records of a folder (flight_rank_*.json) and says in one sentence who did not do what the others
/// waited for: rank, operation, number, and the line that called it. Records of a run before, which a rank of this one
/// has not replaced, do not count.
///
/// Throws IoError (the folder cannot be read), DataError (no records in it, a record that is none).
std::string diagnose_flight(const std::filesystem::path& folder);

}  // namespace tandem::flight
