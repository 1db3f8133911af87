#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::test {

/// An image of one colour, as a file's bytes.
std::string jpeg_of(int width, int height, uint8_t red, uint8_t green, uint8_t blue);

/// channels: 1 grey, 2 grey and alpha, 3 red green blue, 4 with alpha. pixels: interleaved, 8 bits.
std::string png_of(int width, int height, int channels, const std::vector<uint8_t>& pixels);
std::string png_of(int width, int height, uint8_t red, uint8_t green, uint8_t blue);

}  // namespace tandem::test
