#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <variant>

#include "tandem/data/glyph/glyph_renderer.h"

namespace tandem::data {

/// The images of a sheet, in memory that the view does not own.
struct SheetView {
  std::span<const char32_t> characters;
  const uint8_t* pixels = nullptr;  // characters.size() * size * size bytes
};

/// Parses a sheet's file: little-endian, a header of 32 bytes, then `count` code points, then the pixels.
///
///   0 magic "TNDMGLYF" | 8 u64 key | 16 u32 size | 20 u32 count | 24 u64 XXH3 of all bytes from 32 on and key, size,
///   count
///
/// `file` must be aligned to 4 bytes and outlive the view. Returns an error text if the file is damaged or has another
/// key or size.
std::variant<SheetView, std::string> parse_sheet(std::span<const std::byte> file, uint64_t key, int64_t size);

/// Writes a sheet to a temporary file and renames it to `file`, so that a reader sees all of it or nothing. Several
/// writers may race. Throws IoError with the system's reason, and then leaves no file behind.
void write_sheet(const std::filesystem::path& file, const GlyphImages& images, uint64_t key, int64_t size);

}  // namespace tandem::data
