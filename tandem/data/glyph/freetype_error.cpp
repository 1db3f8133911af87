#include "tandem/data/glyph/freetype_error.h"

#include <ft2build.h>
#include FT_FREETYPE_H

namespace tandem::data {

std::string freetype_error(int fault) {
// Expands FreeType's list of errors as its header describes: included once more, as a switch.
#undef FTERRORS_H_
#define FT_ERROR_START_LIST switch (FT_ERROR_BASE(fault)) {
#define FT_ERRORDEF(name, value, text) \
  case value:                          \
    return text;
#define FT_ERROR_END_LIST }
#include FT_ERRORS_H
  return "FreeType error " + std::to_string(fault);
}

}  // namespace tandem::data
