#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/storage/fields.h"

namespace tandem::storage {

/// Settings that a checkpoint and the run that continues it must share, in the order in which a mismatch is told.
using Identity = std::vector<std::pair<std::string, std::string>>;

struct CheckpointFile {
  std::string name;
  uint64_t bytes = 0;
  std::string checksum;  // of a rank's file: its header's, which holds each tensor's; else the whole file's

  bool operator==(const CheckpointFile&) const = default;
};

/// What a checkpoint says of itself. It is the last file written: where it stands, the others are whole.
struct Manifest {
  int64_t step = 0;
  int world = 1;
  Identity identity;                  // of the job that wrote it
  Fields trainer;                     // epoch, samples seen, best score and the like; numbers come back bit for bit
  std::vector<CheckpointFile> files;  // one a rank in order, then the index; CheckpointStore::commit fills it

  bool operator==(const Manifest&) const = default;
};

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kIndexName = "model.safetensors.index.json";

std::string rank_file_name(int rank);  // rank_0003.safetensors

/// JSON that carries its own checksum. Throws c10::ValueError when a text is not UTF-8 or a name is given twice.
std::string format_manifest(const Manifest& manifest);

/// Throws DataError for any text that format_manifest did not write, down to one bit.
Manifest parse_manifest(std::string_view text, std::string_view file);

/// The index that Hugging Face's tools read: in which file each tensor is.
std::string format_shard_index(const std::map<std::string, std::string>& file_of_tensor, uint64_t total_bytes);

/// Tensor -> file. Throws DataError; also for a file name that leads out of the folder.
std::map<std::string, std::string> parse_shard_index(std::string_view text, std::string_view file);

}  // namespace tandem::storage
