#include "tandem/data/glyph/font_file.h"

#include <cstdint>

namespace tandem::data {
namespace {

constexpr uint32_t tag(const char (&name)[5]) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = (value << 8) | static_cast<unsigned char>(name[i]);
  return value;
}

constexpr uint64_t kHeaderBytes = 12, kRecordBytes = 16;

/// Reads big-endian numbers. A read past the end of the file returns 0 and sets cut() for good.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> file) : file_(file) {}

  uint32_t number(uint64_t offset, int bytes) {
    if (offset + static_cast<uint64_t>(bytes) > file_.size()) {
      cut_ = true;
      return 0;
    }
    uint32_t value = 0;
    for (int i = 0; i < bytes; ++i) value = (value << 8) | std::to_integer<uint32_t>(file_[offset + i]);
    return value;
  }
  bool cut() const { return cut_; }
  uint64_t size() const { return file_.size(); }

 private:
  std::span<const std::byte> file_;
  bool cut_ = false;
};

std::string printable(uint32_t tag) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) {
    const auto letter = static_cast<char>((tag >> shift) & 0xFF);
    text += letter >= ' ' && letter <= '~' ? letter : '?';
  }
  return text;
}

std::optional<std::string> check_face(Reader& file, uint64_t start) {
  const uint32_t tables = file.number(start + 4, 2);
  for (uint32_t i = 0; i < tables && !file.cut(); ++i) {
    const uint64_t record = start + kHeaderBytes + i * kRecordBytes;
    const uint32_t name = file.number(record, 4);
    const uint64_t end = uint64_t{file.number(record + 8, 4)} + file.number(record + 12, 4);
    if (!file.cut() && end > file.size()) {
      return "table '" + printable(name) + "' ends at byte " + std::to_string(end) + " of " +
             std::to_string(file.size());
    }
  }
  if (file.cut()) return "its table directory ends past byte " + std::to_string(file.size());
  return std::nullopt;
}

}  // namespace

std::optional<std::string> missing_font_bytes(std::span<const std::byte> bytes) {
  Reader file(bytes);
  const uint32_t kind = file.number(0, 4);
  if (kind == 0x00010000 || kind == tag("OTTO") || kind == tag("true")) return check_face(file, 0);
  if (kind != tag("ttcf")) return std::nullopt;
  const uint32_t faces = file.number(8, 4);
  for (uint32_t i = 0; i < faces; ++i) {
    const uint64_t start = file.number(kHeaderBytes + uint64_t{i} * 4, 4);
    if (auto fault = check_face(file, start)) return fault;
  }
  if (file.cut()) return "its list of faces ends past byte " + std::to_string(file.size());
  return std::nullopt;
}

}  // namespace tandem::data
