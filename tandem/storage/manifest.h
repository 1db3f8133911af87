#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/storage/fields.h"

namespace tandem::storage {

/// Settings that a checkpoint and the run that continues it must share, in the order in which mismatches are reported.
using Identity = std::vector<std::pair<std::string, std::string>>;

struct CheckpointFile {
  std::string name;
  uint64_t bytes = 0;
  std::string checksum;  // rank's file: of its header, which holds each tensor's; else of the whole file

  bool operator==(const CheckpointFile&) const = default;
};

/// Describes a checkpoint. It is the last file written: if it exists, the others are complete.
struct Manifest {
  int64_t step = 0;
  int world = 1;
  Identity identity;  // of the job that wrote it
  Fields trainer;     // epoch, samples seen, best score and so on; numbers are restored bit for bit
  // One per rank in order, then the index, then the model card if there is one; CheckpointStore::commit fills it.
  std::vector<CheckpointFile> files;

  const CheckpointFile& index() const { return files[static_cast<size_t>(world)]; }
  const CheckpointFile* card() const {  // null: there is none
    return files.size() > static_cast<size_t>(world) + 1 ? &files.back() : nullptr;
  }

  bool operator==(const Manifest&) const = default;
};

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kIndexName = "model.safetensors.index.json";
inline constexpr const char* kCardName = "model.json";

std::string rank_file_name(int rank);  // rank_0003.safetensors

/// Writes a manifest as JSON with a checksum of its own: version 1, or 2 with a model card. Throws c10::ValueError if a
/// text is not UTF-8 or a name is given twice.
std::string format_manifest(const Manifest& manifest);

/// Parses a manifest. Throws DataError if the text differs by a single bit from what format_manifest() wrote.
Manifest parse_manifest(std::string_view text, std::string_view file);

/// Writes the index that Hugging Face's tools read: the file of each tensor.
std::string format_shard_index(const std::map<std::string, std::string>& file_of_tensor, uint64_t total_bytes);

/// The longest index that is read.
inline constexpr uint64_t kMaxIndexBytes = 256 << 20;

/// Parses an index: tensor -> file. Throws DataError, also for a file name that leads out of the folder.
std::map<std::string, std::string> parse_shard_index(std::string_view text, std::string_view file);

}  // namespace tandem::storage
