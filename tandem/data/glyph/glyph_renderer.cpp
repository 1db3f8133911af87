#include "tandem/data/glyph/glyph_renderer.h"

#include <ft2build.h>
#include FT_FREETYPE_H
#include FT_BBOX_H
#include FT_OUTLINE_H

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>

#include "tandem/base/error.h"
#include "tandem/base/threads.h"
#include "tandem/data/glyph/character_set.h"
#include "tandem/data/glyph/font_file.h"
#include "tandem/data/glyph/freetype_error.h"
#include "tandem/storage/mapped_file.h"

namespace tandem::data {
namespace {

constexpr double kEmShare = 0.9;           // of the image's side
constexpr int kLeastInk = 32;              // a fainter image counts as blank
constexpr size_t kCharactersAtOnce = 256;  // characters that a thread takes at a time

struct CloseLibrary {
  void operator()(FT_Library library) const { FT_Done_FreeType(library); }
};
struct CloseFace {
  void operator()(FT_Face face) const { FT_Done_Face(face); }
};
using Library = std::unique_ptr<FT_LibraryRec_, CloseLibrary>;
using Face = std::unique_ptr<FT_FaceRec_, CloseFace>;

Library open_library() {
  FT_Library library = nullptr;
  if (const auto fault = FT_Init_FreeType(&library)) {
    throw DataError("FreeType cannot start (" + freetype_error(fault) + ")");
  }
  return Library(library);
}

Face open_face(FT_Library library, const FontFace& font, std::span<const std::byte> bytes, int64_t size) {
  const std::string file = "font file '" + font.file.string() + "'";
  FT_Face opened = nullptr;
  const auto fault = FT_New_Memory_Face(library, reinterpret_cast<const FT_Byte*>(bytes.data()),
                                        static_cast<FT_Long>(bytes.size()), font.index, &opened);
  if (fault) throw DataError(file + " cannot be read as a font (" + freetype_error(fault) + ")", "install it again");
  Face face(opened);
  const auto em = static_cast<FT_F26Dot6>(kEmShare * 64 * static_cast<double>(size) + 0.5);
  if (!FT_IS_SCALABLE(opened) || FT_Set_Char_Size(opened, 0, em, 72, 72) != 0) {
    throw DataError(file + " holds no outlines, only pictures of fixed size", "take another font");
  }
  if (FT_Select_Charmap(opened, FT_ENCODING_UNICODE) != 0) {
    throw DataError(file + " has no table from Unicode to its glyphs", "take another font");
  }
  return face;
}

/// Shrinks an outline that is larger than the image and centres its bounding box.
void fit(FT_Outline& outline, int64_t size) {
  FT_BBox box;
  FT_Outline_Get_BBox(&outline, &box);
  const FT_Pos side = static_cast<FT_Pos>(size) * 64;
  const FT_Pos extent = std::max(box.xMax - box.xMin, box.yMax - box.yMin);
  if (extent > side) {
    const FT_Fixed scale = FT_DivFix(side, extent);
    const FT_Matrix shrink = {scale, 0, 0, scale};
    FT_Outline_Transform(&outline, &shrink);
    FT_Outline_Get_BBox(&outline, &box);
  }
  FT_Outline_Translate(&outline, (side - box.xMin - box.xMax) / 2, (side - box.yMin - box.yMax) / 2);
}

/// One thread's view of a font: FreeType's objects belong to one thread.
class Renderer {
 public:
  Renderer(const Font& font, std::span<const storage::MappedFile> files, int64_t size)
      : font_(font), size_(size), library_(open_library()) {
    for (size_t i = 0; i < files.size(); ++i) {
      faces_.push_back(open_face(library_.get(), font.faces[i], files[i].bytes(), size));
    }
  }

  void add(char32_t character, GlyphImages& images) {
    for (size_t i = 0; i < faces_.size(); ++i) {
      const FT_UInt glyph = FT_Get_Char_Index(faces_[i].get(), character);
      if (glyph == 0) continue;
      const size_t before = images.pixels.size();
      images.pixels.resize(before + static_cast<size_t>(size_ * size_));
      if (draw(i, glyph, character, images.pixels.data() + before)) {
        images.characters.push_back(character);
        return;
      }
      images.pixels.resize(before);
    }
  }

 private:
  /// Returns false if the image is blank. `pixels` must be zero before the call.
  bool draw(size_t face_index, FT_UInt glyph, char32_t character, uint8_t* pixels) {
    FT_Face face = faces_[face_index].get();
    auto fault = FT_Load_Glyph(face, glyph, FT_LOAD_NO_HINTING | FT_LOAD_NO_BITMAP);
    if (!fault && face->glyph->format == FT_GLYPH_FORMAT_OUTLINE) {
      FT_Outline& outline = face->glyph->outline;
      if (outline.n_points == 0) return false;
      fit(outline, size_);
      FT_Bitmap bitmap{};
      bitmap.rows = bitmap.width = static_cast<unsigned>(size_);
      bitmap.pitch = static_cast<int>(size_);
      bitmap.buffer = pixels;
      bitmap.num_grays = 256;
      bitmap.pixel_mode = FT_PIXEL_MODE_GRAY;
      fault = FT_Outline_Get_Bitmap(library_.get(), &outline, &bitmap);
    }
    if (fault) {
      throw DataError("font file '" + font_.faces[face_index].file.string() + "' cannot draw " +
                          character_name(character) + " (" + freetype_error(fault) + ")",
                      "install it again, or leave this font out");
    }
    return *std::max_element(pixels, pixels + size_ * size_) >= kLeastInk;
  }

  const Font& font_;
  int64_t size_;
  Library library_;  // outlives the faces
  std::vector<Face> faces_;
};

std::vector<storage::MappedFile> open_files(const Font& font) {
  std::vector<storage::MappedFile> files;
  for (const auto& face : font.faces) {
    files.emplace_back(face.file);
    if (const auto missing = missing_font_bytes(files.back().bytes())) {
      throw DataError("font file '" + face.file.string() + "' is cut short (" + *missing + ")", "install it again");
    }
  }
  return files;
}

}  // namespace

GlyphImages render_glyphs(const Font& font, std::span<const char32_t> characters, int64_t size, int threads) {
  const auto files = open_files(font);
  const size_t num_chunks = (characters.size() + kCharactersAtOnce - 1) / kCharactersAtOnce;
  std::vector<GlyphImages> chunks(num_chunks);
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr fault;

  const auto work = [&] {
    try {
      Renderer renderer(font, files, size);
      for (size_t i = next++; i < num_chunks; i = next++) {
        const size_t begin = i * kCharactersAtOnce;
        const auto part = characters.subspan(begin, std::min(kCharactersAtOnce, characters.size() - begin));
        for (const char32_t character : part) renderer.add(character, chunks[i]);
      }
    } catch (...) {
      next = num_chunks;
      const std::lock_guard lock(mutex);
      if (!fault) fault = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> helpers;
    const size_t wanted = std::min<size_t>(static_cast<size_t>(std::max(threads, 1)), std::max<size_t>(num_chunks, 1));
    for (size_t i = 1; i < wanted; ++i) helpers.push_back(start_thread<std::jthread>(work));
    work();
  }
  if (fault) std::rethrow_exception(fault);

  GlyphImages all;
  for (const auto& chunk : chunks) {
    all.characters.insert(all.characters.end(), chunk.characters.begin(), chunk.characters.end());
    all.pixels.insert(all.pixels.end(), chunk.pixels.begin(), chunk.pixels.end());
  }
  return all;
}

uint32_t freetype_version() {
  const auto library = open_library();
  FT_Int major = 0, minor = 0, patch = 0;
  FT_Library_Version(library.get(), &major, &minor, &patch);
  return static_cast<uint32_t>(major * 10000 + minor * 100 + patch);
}

}  // namespace tandem::data
