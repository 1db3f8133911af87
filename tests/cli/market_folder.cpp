#include "tests/cli/market_folder.h"

#include <vector>

#include "tandem/data/glyphs.h"
#include "tests/data/image_files.h"
#include "tests/support/files.h"

namespace tandem::test {
namespace {

constexpr int kSide = 32;

std::string image_name(int64_t pid, int64_t camera) {
  char text[64];
  std::snprintf(text, sizeof text, pid < 0 ? "%ld_c%lds1_%06ld_00.png" : "%04ld_c%lds1_%06ld_00.png", pid, camera,
                camera);
  return text;
}

}  // namespace

void write_market_folder(const std::filesystem::path& folder, int64_t learned, int64_t searched) {
  const auto split = data::glyphs({.classes = std::to_string(learned + searched), .size = kSide});
  std::vector<uint8_t> pixels(kSide * kSide);
  int64_t last_label = -1, camera = 0;
  for (int64_t i = 0; i < split.train->size(); ++i) {
    const int64_t label = split.train->read(i, pixels);
    camera = label == last_label ? camera + 1 : 1;
    last_label = label;
    const std::string part = label < learned ? "bounding_box_train" : camera == 1 ? "query" : "bounding_box_test";
    spill(folder / part / image_name(label + 1, camera), png_of(kSide, kSide, 1, pixels));
    if (label == 0) spill(folder / "bounding_box_test" / image_name(0, camera), png_of(kSide, kSide, 1, pixels));
    if (label == 1) spill(folder / "bounding_box_test" / image_name(-1, camera), png_of(kSide, kSide, 1, pixels));
  }
}

}  // namespace tandem::test
