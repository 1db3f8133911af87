#pragma once
#include <filesystem>

namespace tandem::test {

/// A folder in Market-1501's layout, made of characters: an identity is a character, a camera is a font. `learned`
/// characters to train on; of `searched` others one image in query, the others in the gallery, with some distractors
/// and junk.
void write_market_folder(const std::filesystem::path& folder, int64_t learned, int64_t searched);

}  // namespace tandem::test
