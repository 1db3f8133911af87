#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/storage/file_io.h"

namespace tandem::storage {

/// Largest payload of a record, in bytes.
inline constexpr uint64_t kMaxRecordBytes = (uint64_t{1} << 29) - 1;

/// One record of a RecordIO file:
///
///   u32 magic 0xCED7230A | u32 part << 29 | length | payload | zeros up to a multiple of 4        (little endian)
///
/// part: 0 whole, 1 first, 2 middle, 3 last. A payload that holds the magic at a multiple of 4 is split there: the
/// magic is left out, and put back between the parts by the reader.
struct Record {
  std::span<const std::byte> payload;  // a view of the file, or of `joined` if the record has several parts
  uint64_t end = 0;                    // where the next record begins
};

/// Reads the record at byte `offset` and checks magic, part, length and order of the parts. `joined` holds a record of
/// several parts until the next call; it takes no more memory than the file has bytes. Errors name `name`. To read all
/// records, start at 0 and continue at `end` while it is below the file's size.
/// Throws DataError. Source: dmlc-core, recordio.
Record read_record(std::span<const std::byte> file, uint64_t offset, std::vector<std::byte>& joined,
                   std::string_view name);

/// "'NAME': record[byte OFFSET]", the beginning of an error text.
std::string record_place_text(std::string_view name, uint64_t offset);

/// Appends a record to `out`, in several parts if necessary. Throws DataError (payload above kMaxRecordBytes).
void append_record(std::span<const std::byte> payload, std::vector<std::byte>& out);

/// The place of a record. An index file has a line of `key TAB offset` for each record.
struct RecordPlace {
  uint64_t key, offset;

  bool operator==(const RecordPlace&) const = default;
};

/// Parses an index file and sorts it by key. Throws DataError (a line that is not `key TAB offset`, a duplicate key).
std::vector<RecordPlace> parse_record_index(std::span<const std::byte> file, std::string_view name);

/// Makes the index of a record file that has none: keys 0, 1, ... in the order of the file. Reads the whole file.
/// Throws what read_record() throws.
std::vector<RecordPlace> index_records(std::span<const std::byte> file, std::string_view name);

/// Writes records and their index.
class RecordWriter {
 public:
  /// Replaces older files of these names. Throws IoError.
  RecordWriter(std::filesystem::path records, std::filesystem::path index);

  /// Returns the record's offset. Throws DataError (too long), IoError.
  uint64_t write(uint64_t key, std::span<const std::byte> payload);

  /// Completes both files and waits until their bytes are on the disk. Without this call, the destructor removes both.
  /// Throws IoError.
  void close();

 private:
  void write_lines();

  OutputFile records_, index_;
  std::vector<std::byte> buffer_;
  std::string lines_;  // of the index, not yet written
  uint64_t offset_ = 0;
};

}  // namespace tandem::storage
