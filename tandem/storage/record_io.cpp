#include "tandem/storage/record_io.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tandem/base/error.h"

namespace tandem::storage {
namespace {

static_assert(std::endian::native == std::endian::little, "records are read as they lie in memory");

constexpr uint32_t kMagic = 0xCED7230A;
constexpr uint64_t kHeaderBytes = 8, kAlignment = 4;
constexpr int kLengthBits = 29;

enum class PartKind : uint32_t { whole = 0, first = 1, middle = 2, last = 3 };

struct Part {
  PartKind kind;
  std::span<const std::byte> payload;
  uint64_t end;
};

[[noreturn]] void fail(std::string_view name, uint64_t offset, const std::string& fault) {
  throw DataError(record_place_text(name, offset) + " " + fault,
                  "the file or its index is damaged or of another format, use another copy");
}

uint32_t number_at(std::span<const std::byte> file, uint64_t offset) {
  uint32_t value;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

std::string hex(uint32_t value) {
  char text[11];
  std::snprintf(text, sizeof text, "0x%08X", value);
  return text;
}

uint64_t padded(uint64_t length) { return (length + kAlignment - 1) / kAlignment * kAlignment; }

Part read_part(std::span<const std::byte> file, uint64_t offset, std::string_view name) {
  const uint64_t rest = offset < file.size() ? file.size() - offset : 0;
  if (rest < kHeaderBytes) {
    fail(name, offset, "has " + std::to_string(rest) + " bytes up to the file's end, wanted a header of 8");
  }
  if (const uint32_t magic = number_at(file, offset); magic != kMagic) {
    fail(name, offset, "begins with " + hex(magic) + ", wanted the magic " + hex(kMagic));
  }
  const uint32_t word = number_at(file, offset + kAlignment);
  const uint32_t kind = word >> kLengthBits, length = word & kMaxRecordBytes;
  if (kind > static_cast<uint32_t>(PartKind::last)) {
    fail(name, offset, "part is " + std::to_string(kind) + ", wanted 0 whole, 1 first, 2 middle or 3 last");
  }
  if (padded(length) > rest - kHeaderBytes) {
    fail(name, offset,
         "length is " + std::to_string(length) + ", wanted at most " + std::to_string(rest - kHeaderBytes) +
             ", padding included, up to the file's end");
  }
  return {PartKind{kind}, file.subspan(offset + kHeaderBytes, length), offset + kHeaderBytes + padded(length)};
}

void append(std::vector<std::byte>& out, std::span<const std::byte> bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void append_number(std::vector<std::byte>& out, uint32_t value) { append(out, std::as_bytes(std::span(&value, 1))); }

void append_part(PartKind kind, std::span<const std::byte> payload, std::vector<std::byte>& out) {
  append_number(out, kMagic);
  append_number(out, static_cast<uint32_t>(kind) << kLengthBits | static_cast<uint32_t>(payload.size()));
  append(out, payload);
  out.resize(out.size() + padded(payload.size()) - payload.size());
}

/// Parses `key TAB offset`, with a carriage return at the end if the file comes from Windows.
bool parse_line(std::string_view line, RecordPlace& place) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const char* end = line.data() + line.size();
  const auto key = std::from_chars(line.data(), end, place.key);
  if (key.ec != std::errc() || key.ptr == end || *key.ptr != '\t') return false;
  const auto offset = std::from_chars(key.ptr + 1, end, place.offset);
  return offset.ec == std::errc() && offset.ptr == end;
}

constexpr size_t kIndexBytes = 1 << 16;  // of lines that are written at once

}  // namespace

Record read_record(std::span<const std::byte> file, uint64_t offset, std::vector<std::byte>& joined,
                   std::string_view name) {
  Part part = read_part(file, offset, name);
  if (part.kind == PartKind::whole) return {part.payload, part.end};
  if (part.kind != PartKind::first) fail(name, offset, "is a later part of a record, wanted its first");
  joined.assign(part.payload.begin(), part.payload.end());
  while (part.kind != PartKind::last) {
    if (part.payload.size() % kAlignment != 0) {
      fail(name, offset, "is cut at " + std::to_string(joined.size()) + ", wanted a multiple of 4");
    }
    part = read_part(file, part.end, name);
    if (part.kind != PartKind::middle && part.kind != PartKind::last) {
      fail(name, offset, "has no last part, wanted one before the next record begins");
    }
    append_number(joined, kMagic);
    append(joined, part.payload);
  }
  return {joined, part.end};
}

std::string record_place_text(std::string_view name, uint64_t offset) {
  return "'" + std::string(name) + "': record[byte " + std::to_string(offset) + "]";
}

void append_record(std::span<const std::byte> payload, std::vector<std::byte>& out) {
  if (payload.size() > kMaxRecordBytes) {
    throw DataError("record is " + std::to_string(payload.size()) + " bytes, wanted at most " +
                    std::to_string(kMaxRecordBytes));
  }
  uint64_t begin = 0;
  for (uint64_t at = 0; at + sizeof kMagic <= payload.size(); at += kAlignment) {
    if (number_at(payload, at) != kMagic) continue;
    append_part(begin == 0 ? PartKind::first : PartKind::middle, payload.subspan(begin, at - begin), out);
    begin = at + sizeof kMagic;
  }
  append_part(begin == 0 ? PartKind::whole : PartKind::last, payload.subspan(begin), out);
}

std::vector<RecordPlace> parse_record_index(std::span<const std::byte> file, std::string_view name) {
  std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  std::vector<RecordPlace> places;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (!parse_line(line, places.emplace_back())) {
      throw DataError("'" + std::string(name) + "': line[" + std::to_string(places.size()) +
                          "] is no index entry, wanted a key, a tab and an offset, whole numbers below 2^64",
                      "remove the file, and the records are indexed anew");
    }
  }
  std::ranges::sort(places, {}, &RecordPlace::key);
  const auto twice = std::ranges::adjacent_find(places, {}, &RecordPlace::key);
  if (twice != places.end()) {
    throw DataError(
        "'" + std::string(name) + "': key " + std::to_string(twice->key) + " is given twice, wanted it once",
        "remove the file, and the records are indexed anew");
  }
  return places;
}

std::vector<RecordPlace> index_records(std::span<const std::byte> file, std::string_view name) {
  std::vector<RecordPlace> places;
  std::vector<std::byte> joined;
  for (uint64_t offset = 0; offset < file.size();) {
    places.push_back({places.size(), offset});
    offset = read_record(file, offset, joined, name).end;
  }
  return places;
}

RecordWriter::RecordWriter(std::filesystem::path records, std::filesystem::path index)
    : records_(std::move(records)), index_(std::move(index)) {}

uint64_t RecordWriter::write(uint64_t key, std::span<const std::byte> payload) {
  buffer_.clear();
  append_record(payload, buffer_);
  records_.append(buffer_);
  const uint64_t offset = offset_;
  offset_ += buffer_.size();
  lines_ += std::to_string(key) + '\t' + std::to_string(offset) + '\n';
  if (lines_.size() >= kIndexBytes) write_lines();
  return offset;
}

void RecordWriter::write_lines() {
  index_.append(std::as_bytes(std::span(lines_)));
  lines_.clear();
}

void RecordWriter::close() {
  write_lines();
  records_.finish();
  index_.finish();
}

}  // namespace tandem::storage
