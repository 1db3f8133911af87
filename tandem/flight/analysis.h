#pragma once
#include <filesystem>
#include <string>

namespace tandem::flight {

/// Reads the flight records of a folder (flight_rank_*.json) and says in one sentence which rank did not do what the
/// others waited for: rank, operation, number, and the line of the call. Records of an earlier run that no rank of the
/// last run has replaced are ignored.
///
/// Throws IoError (the folder cannot be read), DataError (no records in it, an invalid record).
std::string diagnose_flight(const std::filesystem::path& folder);

}  // namespace tandem::flight
