#include "tandem/data/image/turn.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

namespace tandem::data {
namespace {

class Tiff {
 public:
  Tiff(std::span<const std::byte> bytes, bool is_big_endian) : bytes_(bytes), is_big_endian_(is_big_endian) {}

  /// An unsigned number; nullopt if it is not in the data.
  std::optional<uint64_t> number(uint64_t offset, uint64_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset) return std::nullopt;
    uint64_t value = 0;
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t at = is_big_endian_ ? offset + i : offset + size - 1 - i;
      value = value << 8 | std::to_integer<uint64_t>(bytes_[at]);
    }
    return value;
  }

  /// The value of the directory's entry at `offset` if that is one whole number.
  std::optional<uint64_t> value(uint64_t offset) const {
    constexpr uint64_t kByte = 1, kShort = 3, kLong = 4;
    if (number(offset + 4, 4) != uint64_t{1}) return std::nullopt;
    switch (number(offset + 2, 2).value_or(0)) {
      case kByte:
        return number(offset + 8, 1);
      case kShort:
        return number(offset + 8, 2);
      case kLong:
        return number(offset + 8, 4);
      default:
        return std::nullopt;
    }
  }

  /// The value of `tag` in the first directory.
  std::optional<uint64_t> find(uint64_t tag) const {
    constexpr uint64_t kEntryBytes = 12;
    const uint64_t directory = number(4, 4).value_or(0), count = number(directory, 2).value_or(0);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t entry = directory + 2 + i * kEntryBytes;
      if (number(entry, 2) == tag) return value(entry);
    }
    return std::nullopt;
  }

 private:
  std::span<const std::byte> bytes_;
  bool is_big_endian_;
};

bool begins_with(std::span<const std::byte> bytes, const std::array<unsigned char, 4>& magic) {
  return bytes.size() >= magic.size() && std::ranges::equal(bytes.first(magic.size()), std::as_bytes(std::span(magic)));
}

}  // namespace

Turn exif_turn(std::span<const std::byte> exif) {
  constexpr uint64_t kOrientation = 0x0112;
  constexpr std::array<Turn, 9> kTurns = {{{},  // of the tag's values: 0 is none, 1 is upright
                                           {},
                                           {.columns_mirrored = true},
                                           {.rows_mirrored = true, .columns_mirrored = true},
                                           {.rows_mirrored = true},
                                           {.transposed = true},
                                           {.transposed = true, .rows_mirrored = true},
                                           {.transposed = true, .rows_mirrored = true, .columns_mirrored = true},
                                           {.transposed = true, .columns_mirrored = true}}};
  const bool is_big_endian = begins_with(exif, {'M', 'M', 0, 42});
  if (!is_big_endian && !begins_with(exif, {'I', 'I', 42, 0})) return {};
  const auto value = Tiff(exif, is_big_endian).find(kOrientation).value_or(0);
  return value < kTurns.size() ? kTurns[value] : Turn{};
}

}  // namespace tandem::data
