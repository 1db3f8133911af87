#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace tandem::data {

/// A PNG of an image as a data set gives it: `shape` is channels (1 or 3), height, width; a plane a channel. Throws
/// c10::ValueError (channels, size of `planes`), std::bad_alloc.
std::string encode_png(std::span<const uint8_t> planes, const std::array<int64_t, 3>& shape);

}  // namespace tandem::data
