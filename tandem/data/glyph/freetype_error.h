#pragma once
#include <string>

namespace tandem::data {

/// What a FreeType error code means: "unknown file format". FT_Error_String has no texts in most builds.
std::string freetype_error(int fault);

}  // namespace tandem::data
